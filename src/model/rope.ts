import type { ConfigReader } from "./config-reader.ts";

/** Changes of the rotary frequencies for contexts longer than those of pre-training. */
export type RopeScaling =
  | { type: "linear"; factor: number }
  | {
      type: "llama3";
      factor: number;
      lowFrequencyFactor: number;
      highFrequencyFactor: number;
      originalMaxPositions: number;
    };

/**
 * Rotary settings in either spelling: `rope_theta` and `rope_scaling` at the top (`transformers` 4), or both inside
 * `rope_parameters` (5). Kinds `default`, `linear` and `llama3`; the rest is `RLVR_MODEL_UNSUPPORTED`.
 */
export function parseRope(reader: ConfigReader): { theta: number; scaling: RopeScaling | null } {
  refusePartial(reader);
  const source = reader.object("rope_scaling") ?? reader.object("rope_parameters");
  const topTheta = reader.positive("rope_theta", 10000);
  if (source === null) return { theta: topTheta, scaling: null };
  refusePartial(source);
  return { theta: source.positive("rope_theta", topTheta), scaling: parseScaling(source) };
}

function refusePartial(reader: ConfigReader): void {
  const share = reader.value("partial_rotary_factor");
  if (share !== undefined && share !== null && share !== 1)
    throw reader.unsupported("partial_rotary_factor", "1", share);
}

function parseScaling(source: ConfigReader): RopeScaling | null {
  const key = source.missing("rope_type") && !source.missing("type") ? "type" : "rope_type";
  const kind = source.value(key);
  const onlyTheta = source.keys.every((name) => name === "rope_theta" || source.missing(name));
  if (kind === "default" || (source.missing(key) && onlyTheta)) return null;
  if (kind === "linear") return { type: "linear", factor: source.positive("factor") };
  if (kind !== "llama3") throw source.unsupported(key, `"default", "linear" or "llama3"`, kind);
  const scaling: RopeScaling = {
    type: "llama3",
    factor: source.positive("factor"),
    lowFrequencyFactor: source.positive("low_freq_factor"),
    highFrequencyFactor: source.positive("high_freq_factor"),
    originalMaxPositions: source.integer("original_max_position_embeddings"),
  };
  if (scaling.lowFrequencyFactor >= scaling.highFrequencyFactor) {
    const expected = `more than low_freq_factor (${scaling.lowFrequencyFactor})`;
    throw source.error("high_freq_factor", expected, scaling.highFrequencyFactor);
  }
  return scaling;
}
