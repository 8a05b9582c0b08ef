// benchmark.ts: how long models take, alone, beside peers, and together.
import { argumentError } from '../core/checks.js'
import type { Model } from '../model/model.js'
import type { BenchmarkOptions, TogetherOptions } from './options.js'
import type { BenchmarkResult, TogetherResult } from './result.js'

/**
 * Measures how long inferences of a model take, from the call until the outputs are in memory, after runs that warm up. What is
 * given as `versus` is measured in turns with it, a tenth of the runs each, so that a change of the machine's speed meets all of
 * them. During the timed runs processor time and energy of this process, and a GPU where there is one, are measured, too.
 *
 * @param model - the path of an .onnx file; or a Model, which is measured as it was loaded unless an option asks for
 * something else
 * @throws SparkError ERR_ARGUMENT for an option; ERR_UNSUPPORTED when a peer is not installed or cannot run the model; as
 * {@link Model.load} and {@link Model.run}; the reason of `signal` when it is aborted before the first timed run
 * @example
 * const { p50, throughput, warnings } = await benchmark('model.onnx', { runs: 200, backend: 'cpu' })
 * for (const warning of warnings) console.log(warning)
 * console.log(`${p50.toFixed(3)} ms, ${throughput.toFixed(0)} inferences/s`)
 */
export async function benchmark(
  model: string | Model,
  options: BenchmarkOptions = {},
): Promise<BenchmarkResult> {
  const { expectBenchmarkModel, expectBenchmarkOptions } = await import('./options.js')
  expectBenchmarkModel('model', model)
  expectBenchmarkOptions(options)
  const { measure } = await import('./measure.js')
  return measure(model, options)
}

/**
 * Measures several models as a driving program runs them: at each tick of a clock all of them, one after another. Between frames
 * processors and GPUs slow down or sleep, so that latencies are longer than those of {@link benchmark}. Ticks that pass while a
 * frame is running are left out.
 *
 * @param models - paths of .onnx files, or Models, in the order in which they run
 * @throws SparkError ERR_ARGUMENT for no models or an option; as {@link Model.load} and {@link Model.run}; the reason of `signal`
 * when it is aborted before the first frame has ended
 * @example
 * const { combined, misses } = await benchmarkTogether(['vision.onnx', 'policy.onnx'], { hz: 20, seconds: 30 })
 * console.log(`${combined.p99} ms, ${misses} frames took more than 50 ms`)
 */
export async function benchmarkTogether(
  models: readonly (string | Model)[],
  options: TogetherOptions = {},
): Promise<TogetherResult> {
  const { expectBenchmarkModel, expectTogetherOptions } = await import('./options.js')
  if (!Array.isArray(models) || models.length === 0)
    throw argumentError('models', 'an array of at least one model', models)
  for (const [i, model] of models.entries()) expectBenchmarkModel(`models[${i}]`, model)
  expectTogetherOptions(options)
  const { runTogether } = await import('./together.js')
  return runTogether(models, options)
}
