// llama-cpp-peer.ts: node-llama-cpp, where it is installed, on the same file, to compare speeds with.
import { SparkError } from '../../core/errors.js'
import type { GenerateTimed } from './measure-speed.js'

/** What is used of the package, which is no dependency. */
interface LlamaPackage {
  getLlama(options: object): Promise<{
    loadModel(options: object): Promise<{
      createContext(options: object): Promise<LlamaContext>
      dispose(): Promise<void>
    }>
    dispose(): Promise<void>
  }>
}

interface LlamaContext {
  getSequence(): LlamaSequence
}

interface LlamaSequence {
  evaluate(tokens: readonly number[], options: object): AsyncGenerator<number>
  clearHistory(): Promise<void>
}

/** The peer with a model open. */
export interface LlamaPeer {
  readonly generate: GenerateTimed
  dispose(): Promise<void>
}

/** How the peer is opened. */
export interface LlamaPeerOptions {
  /** Tokens of a sequence at most. */
  readonly contextLength: number
  /** Texts at once. */
  readonly sequences: number
  readonly threads?: number | undefined
}

/**
 * Opens a GGUF file with node-llama-cpp on the CPU.
 * @throws SparkError ERR_UNSUPPORTED where the package is not installed
 */
export async function openLlamaPeer(
  file: string,
  { contextLength, sequences, threads }: LlamaPeerOptions,
): Promise<LlamaPeer> {
  const { getLlama } = await loadPackage()
  const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error' })
  const model = await llama.loadModel({ modelPath: file })
  const context = await model.createContext({
    contextSize: contextLength,
    sequences,
    ...(threads ? { threads } : {}),
  })
  const free = Array.from({ length: sequences }, () => context.getSequence())
  return {
    async generate(ids, count) {
      const sequence = free.pop()!
      const times: number[] = []
      try {
        for await (const _ of sequence.evaluate(Array.from(ids), { temperature: 0, yieldEogToken: true })) {
          times.push(performance.now())
          if (times.length === count) break
        }
        return times
      } finally {
        await sequence.clearHistory()
        free.push(sequence)
      }
    },
    async dispose() {
      await model.dispose()
      await llama.dispose()
    },
  }
}

async function loadPackage(): Promise<LlamaPackage> {
  const name = 'node-llama-cpp'
  try {
    return (await import(name)) as LlamaPackage
  } catch (cause) {
    const message = `--vs ${name} needs the package: npm install ${name}; ${(cause as Error).message}`
    throw new SparkError('ERR_UNSUPPORTED', message, { cause })
  }
}
