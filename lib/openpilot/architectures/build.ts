// build.ts: openpilot's models with random weights, as users ask for them.
import { expectInteger, expectKnownOptions, expectOneOf } from '../../core/checks.js'
import { Pacer } from '../../core/paced.js'
import type { Graph } from '../../graph/graph.js'

/** Models of openpilot that {@link buildOpenpilotModel} makes. */
export const openpilotModelNames = [
  'supercombo-0.8.10',
  'driving_vision',
  'driving_policy',
  'driving_supercombo',
] as const

/** Name of a model that {@link buildOpenpilotModel} makes. */
export type OpenpilotModelName = (typeof openpilotModelNames)[number]

/** Options of {@link buildOpenpilotModel}. */
export interface OpenpilotModelOptions {
  /** Seed of the weights, an integer in [0, 2^32 − 1]. Default: 1. */
  readonly seed?: number
}

/**
 * Makes a driving model of openpilot with random weights: for tests, benchmarks and trials of what does not depend on what a
 * model has learned. Its one output is `outputs`; its metadata `output_slices` says what lies where in that.
 *
 * - `supercombo-0.8.10`: `input_imgs` f32 [1, 12, 128, 256], `desire` f32 [1, 8], `traffic_convention` f32 [1, 2],
 *   `initial_state` f32 [1, 512] -> f32 [1, 6609], the last 512 of which are the next state; every layer is as in the original.
 * - `driving_vision` (2025): `img` and `big_img` u8 [1, 12, 128, 256] -> f16 [1, 1576].
 * - `driving_policy` (2025): `desire_pulse` f16 [1, 25, 8], `traffic_convention` f16 [1, 2], `features_buffer` f16 [1, 25, 512]
 *   -> f16 [1, 1000].
 * - `driving_supercombo` (2026): `img`, `big_img`, `features_buffer` f16 [1, 24, 512], `desire_pulse`, `traffic_convention`,
 *   `action_t` f16 [1, 2] -> f16 [1, 2576].
 *
 * The last three have the inputs and outputs of the original; their metadata `approximate` says what else is alike.
 * @param name - one of {@link openpilotModelNames}
 * @returns the same graph for the same seed
 * @throws SparkError ERR_ARGUMENT for an unknown name or option
 * @example
 * const graph = await buildOpenpilotModel('driving_policy', { seed: 7 })
 * await writeOnnx(graph, 'driving_policy.onnx')
 */
export async function buildOpenpilotModel(
  name: OpenpilotModelName,
  options: OpenpilotModelOptions = {},
): Promise<Graph> {
  expectOneOf('name', name, openpilotModelNames)
  expectKnownOptions('options', options, ['seed'])
  const { seed = 1 } = options
  expectInteger('seed', seed, 0, 2 ** 32 - 1)
  const { assemble } = await import('./assemble.js')
  return new Pacer().do(assemble(name, seed))
}
