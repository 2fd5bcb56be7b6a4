import { Command } from "commander";
import { RlvrError } from "../base/errors.ts";
import { configHelp } from "./flags.ts";
import { buildCommand, commandNames } from "./program.ts";

/** `rlvr help [topic]` */
export function command(finish: (code: number) => void): Command {
  return new Command("help")
    .description("Explain a command, or with the topic config every key of rlvr.config.ts.")
    .argument("[topic]", `config, or one of ${commandNames.join(", ")}`)
    .option("--json", "with the topic config: print the JSON Schema of a config")
    .action(async (topic: string | undefined, options: { json?: boolean }, self: Command) => {
      if (topic === "config" && options.json) {
        const { configJsonSchema } = await import("../config/schema.ts");
        process.stdout.write(`${JSON.stringify(configJsonSchema(), null, 2)}\n`);
      } else if (topic === "config") {
        process.stdout.write(configHelp());
      } else if (topic === undefined) {
        self.parent?.outputHelp();
      } else if (commandNames.includes(topic)) {
        const named = await buildCommand(topic, finish);
        process.stdout.write(named.name(`rlvr ${topic}`).helpInformation());
      } else {
        throw new RlvrError("RLVR_USAGE", `help: expected config or one of ${commandNames.join(", ")}, got ${topic}`, {
          next: "see rlvr help",
        });
      }
      finish(0);
    });
}
