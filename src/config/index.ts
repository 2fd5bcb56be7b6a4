import type { RlvrUserConfig } from "./schema.ts";

export { configJsonSchema, type RlvrConfig, type RlvrUserConfig } from "./schema.ts";

/**
 * Returns its argument; gives types and completion to a config file.
 *
 * @example
 * export default defineConfig({ model: "model", tasks: makeTasks, verifier: () => makeVerifier(), steps: 50 });
 */
export function defineConfig(config: RlvrUserConfig): RlvrUserConfig {
  return config;
}
