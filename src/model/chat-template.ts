import { Template } from "@huggingface/jinja";
import { errorMessage, RlvrError } from "../base/errors.ts";
import type { ChatMessage } from "../tasks/task.ts";
import type { Tokenizer } from "./tokenizer.ts";

export interface ChatOptions {
  /** Ends with the opening of the assistant's turn, so that the policy answers. On unless switched off. */
  addGenerationPrompt?: boolean;
  bosToken?: string;
  eosToken?: string;
  /** JSON Schemas of tools, for templates that know them. */
  tools?: unknown[];
  /**
   * Further variables of the template, for example `{ enable_thinking: false }`. A template that prints today's date
   * gives other prompts tomorrow: fix the date here where it takes one (`{ date_string: "1 Jan 2025" }`).
   */
  variables?: Record<string, unknown>;
}

/** Parsing costs more than rendering, and every prompt of a run has the same template. */
const parsed = new Map<string, Template>();

function parse(template: string): Template {
  const known = parsed.get(template);
  if (known !== undefined) return known;
  try {
    const fresh = new Template(template);
    parsed.set(template, fresh);
    return fresh;
  } catch (cause) {
    throw new RlvrError(
      "RLVR_CHAT_TEMPLATE",
      `chat template: expected Jinja that can be parsed, got ${errorMessage(cause)}`,
      {
        next: "check chat_template.jinja, or chat_template in tokenizer_config.json",
        cause,
      },
    );
  }
}

/**
 * The messages as one text, by the model's chat template. The text carries its own special tokens: encode it without
 * adding any.
 *
 * Throws `RLVR_CHAT_TEMPLATE_MISSING` when there is no template, and `RLVR_CHAT_TEMPLATE` when it cannot be parsed or
 * refuses the messages.
 */
export function renderChat(template: string | undefined, messages: ChatMessage[], options: ChatOptions = {}): string {
  if (template === undefined)
    throw new RlvrError(
      "RLVR_CHAT_TEMPLATE_MISSING",
      "chat prompt: expected a tokenizer with a chat template, got one without",
      {
        next: "use prompts of plain text, or add chat_template.jinja to the model folder",
      },
    );
  const jinja = parse(template);
  try {
    return jinja.render({
      ...options.variables,
      messages,
      add_generation_prompt: options.addGenerationPrompt ?? true,
      ...(options.bosToken === undefined ? {} : { bos_token: options.bosToken }),
      ...(options.eosToken === undefined ? {} : { eos_token: options.eosToken }),
      ...(options.tools === undefined ? {} : { tools: options.tools }),
    });
  } catch (cause) {
    const roles = messages.map((message) => message.role).join(", ");
    throw new RlvrError(
      "RLVR_CHAT_TEMPLATE",
      `chat template: expected to render messages of ${roles || "nobody"}, got ${errorMessage(cause)}`,
      { next: "give the roles and the order that the model's template allows", cause },
    );
  }
}

/**
 * Token ids of a task's prompt as the policy sees it. Text gets the tokenizer's own frame (such as a token for the
 * beginning); messages go through the chat template, which brings its own.
 */
export function encodePrompt(
  tokenizer: Tokenizer,
  prompt: string | ChatMessage[],
  options: ChatOptions = {},
): number[] {
  if (typeof prompt === "string") return tokenizer.encode(prompt, { addSpecialTokens: true });
  const { bosToken, eosToken, chatTemplate } = tokenizer;
  return tokenizer.encode(renderChat(chatTemplate, prompt, { bosToken, eosToken, ...options }));
}
