export { type AlertOptions, alertsAt } from "./alerts.ts";
export type { Checkpoint } from "./checkpoints.ts";
export { type CreateRunOptions, RunFolder } from "./folder.ts";
export { makeManifest, packageVersion } from "./manifest.ts";
export { dependsOnClock, type MetricName, type MetricRecord, metricNames } from "./metrics.ts";
export { isRunFolder, type RunView, readRun } from "./read.ts";
export type { RolloutRecord } from "./records.ts";
export { type TrendOptions, trendAlertsAt } from "./trend-alerts.ts";
