// onnx-runtime.ts: ONNX Runtime as a peer: it reads the file itself.
import type { InferenceSession } from 'onnxruntime-node'
import type { Pacer } from '../core/paced.js'
import type { ValueInfo } from '../graph/graph.js'
import { type Feeds, readFeeds } from '../model/feeds.js'
import { fromRuntime, loadRuntime, type Runtime, refusal, toRuntime } from '../model/onnx-runtime.js'
import { outputOf } from '../model/results.js'
import { type Candidate, digestOf, outputValues, type Turn, timeRuns } from './candidate.js'
import type { OutputValues } from './result.js'

/** A session of ONNX Runtime. */
export class OnnxRuntimeCandidate implements Candidate {
  readonly backend = 'onnxruntime'
  readonly precision = null
  readonly inProcess = true
  readonly name: string
  readonly inputs: string | null
  readonly #session: InferenceSession
  readonly #feeds: Parameters<InferenceSession['run']>[0]
  #outputs: Readonly<Record<string, unknown>> = {}

  private constructor(
    provider: string,
    runtime: Runtime,
    session: InferenceSession,
    inputs: readonly ValueInfo[],
    feeds: Feeds,
  ) {
    this.name = `onnxruntime ${provider}`
    this.inputs = digestOf(inputs, feeds)
    this.#session = session
    const values = readFeeds(inputs, feeds)
    this.#feeds = Object.fromEntries(
      inputs.map(({ name }, i) => [name, toRuntime(runtime, name, values[i]!)]),
    )
  }

  /**
   * Opens a file.
   * @param provider - ONNX Runtime's name of it, such as cpu or cuda
   * @throws SparkError ERR_UNSUPPORTED when onnxruntime-node is not installed or refuses the model or provider
   */
  static async open(
    file: string,
    provider: string,
    threads: number | undefined,
    inputs: readonly ValueInfo[],
    feeds: Feeds,
  ): Promise<OnnxRuntimeCandidate> {
    const runtime = await loadRuntime()
    const session = await refusal(
      runtime.InferenceSession.create(file, {
        executionProviders: [provider as InferenceSession.ExecutionProviderConfig],
        logSeverityLevel: 3,
        ...(threads && { intraOpNumThreads: threads }),
      }),
    )
    return new OnnxRuntimeCandidate(provider, runtime, session, inputs, feeds)
  }

  async first(): Promise<number> {
    const start = performance.now()
    const results = await refusal(this.#session.run(this.#feeds))
    const took = performance.now() - start
    const outputs = Object.entries(results).map(([name, value]) => [name, outputOf(fromRuntime(value))])
    this.#outputs = Object.fromEntries(outputs)
    return took
  }

  async turn(runs: number, samples: number[], pacer: Pacer): Promise<Turn> {
    return timeRuns(() => this.#session.run(this.#feeds), runs, samples, pacer)
  }

  outputs(): OutputValues[] | null {
    return outputValues(this.#outputs)
  }

  async dispose(): Promise<void> {
    await this.#session.release()
  }
}
