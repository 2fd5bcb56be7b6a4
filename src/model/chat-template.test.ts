import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { ChatMessage } from "../tasks/task.ts";
import { trainBpe } from "./bpe.ts";
import { encodePrompt, renderChat } from "./chat-template.ts";
import { loadTokenizer } from "./tokenizer.ts";

/** Of the form that Qwen models have. */
const TEMPLATE = `{%- if tools %}
{{- '<|im_start|>system\\nTools: ' + (tools | tojson) + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('no such role: ' + message.role) }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}`;

const messages: ChatMessage[] = [
  { role: "system", content: "Answer in JavaScript." },
  { role: "user", content: " double each " },
];

const folder = mkdtempSync(join(tmpdir(), "rlvr-chat-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("renderChat", () => {
  it("renders turns and opens the assistant's", () => {
    const turns = "<|im_start|>system\nAnswer in JavaScript.<|im_end|>\n<|im_start|>user\ndouble each<|im_end|>\n";
    expect(renderChat(TEMPLATE, messages)).toBe(`${turns}<|im_start|>assistant\n`);
    expect(renderChat(TEMPLATE, messages, { addGenerationPrompt: false })).toBe(turns);
  });

  it("passes tokens, tools and further variables", () => {
    expect(
      renderChat("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", messages.slice(1), {
        bosToken: "<s>",
        eosToken: "</s>",
      }),
    ).toBe("<s> double each </s>");
    expect(renderChat(TEMPLATE, messages, { tools: [{ name: "run" }] })).toContain('"name": "run"');
    expect(renderChat(TEMPLATE, messages, { variables: { enable_thinking: false } })).toMatch(/<\/think>\n\n$/);
  });

  it("says that there is no template, that it cannot be parsed, or that it refuses the messages", () => {
    const fails = (act: () => unknown, code: string, text: string) =>
      expect(act).toThrowError(expect.objectContaining({ code, message: expect.stringContaining(text) }));
    fails(() => renderChat(undefined, messages), "RLVR_CHAT_TEMPLATE_MISSING", "got one without");
    fails(() => renderChat("{% if %}", messages), "RLVR_CHAT_TEMPLATE", "can be parsed");
    const odd = [{ role: "tool", content: "" }] as unknown as ChatMessage[];
    fails(() => renderChat(TEMPLATE, odd, {}), "RLVR_CHAT_TEMPLATE", "no such role: tool");
  });
});

describe("encodePrompt", () => {
  const names = ["<|im_start|>", "<|im_end|>"];
  writeFileSync(
    join(folder, "tokenizer.json"),
    JSON.stringify(trainBpe(["system user assistant"], { vocabularySize: 300, specialTokens: names })),
  );
  writeFileSync(join(folder, "tokenizer_config.json"), JSON.stringify({ eos_token: "<|im_end|>" }));
  const plain = loadTokenizer(folder);
  writeFileSync(join(folder, "chat_template.jinja"), TEMPLATE);
  const chat = loadTokenizer(folder);

  it("encodes each turn's frame as single ids and loses no text", () => {
    const ids = encodePrompt(chat, messages);
    expect(ids.filter((id) => id === 0).length).toBe(3);
    expect(ids.filter((id) => id === 1).length).toBe(2);
    expect(chat.decode(ids)).toBe(renderChat(TEMPLATE, messages));
  });

  it("takes text as it is, and needs a template for messages", () => {
    expect(plain.decode(encodePrompt(plain, "double each\n"))).toBe("double each\n");
    expect(() => encodePrompt(plain, messages)).toThrowError(
      expect.objectContaining({ code: "RLVR_CHAT_TEMPLATE_MISSING" }),
    );
  });
});
