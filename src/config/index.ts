import type { RlvrUserConfig } from "./schema.ts";

export { describeConfig, plainValues } from "./describe.ts";
export { configFields, type Field } from "./fields.ts";
export { configNames, findConfig, type LoadedConfig, type LoadOptions, loadConfig } from "./load.ts";
export { parseConfig } from "./parse.ts";
export {
  configJsonSchema,
  type DemonstrationSource,
  type RlvrConfig,
  type RlvrUserConfig,
  type TaskSource,
  type VerifierSource,
} from "./schema.ts";

/**
 * Returns its argument; gives types and completion to a config file.
 *
 * @example
 * export default defineConfig({ model: "model", tasks: makeTasks, verifier: () => makeVerifier(), steps: 50 });
 */
export function defineConfig(config: RlvrUserConfig): RlvrUserConfig {
  return config;
}
