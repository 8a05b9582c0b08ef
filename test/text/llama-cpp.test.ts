// llama.cpp (node-llama-cpp, where it is installed) on the same GGUF files in f32 and f16: the same tokens, and nearly the same
// probabilities.
import path from 'node:path'
import t from 'tap'
import { writeDecoderGguf } from '../fixtures/text/decoder-gguf.js'
import { decoderConfigs, type ReferenceConfig, randomDecoder } from '../fixtures/text/decoder-reference.js'
import { DecoderRows } from '../fixtures/text/decoder-rows.js'
import { dataPath, noLanguageData } from '../fixtures/text/golden-data.js'

/** A token, and tokens with their probabilities. */
interface Step {
  readonly token: number
  readonly probabilities: ReadonlyMap<number, number>
}

/** What is used of the package. */
interface Llama {
  loadModel(options: object): Promise<{
    createContext(options: object): Promise<{
      getSequence(): { evaluateWithMetadata(ids: number[], ...options: object[]): AsyncGenerator<Step> }
    }>
    dispose(): Promise<void>
  }>
  dispose(): Promise<void>
}

const packageName = 'node-llama-cpp'
const installed = (await import(packageName).catch(() => undefined)) as
  | { getLlama(options: object): Promise<Llama> }
  | undefined
const skip = noLanguageData || (installed ? false : `${packageName} is not installed`)

const steps = 16

async function generate(llama: Llama, file: string, ids: number[]): Promise<Step[]> {
  const model = await llama.loadModel({ modelPath: file })
  const types = { experimentalKvCacheKeyType: 'F32', experimentalKvCacheValueType: 'F32' }
  const context = await model.createContext({ contextSize: 128, flashAttention: false, ...types })
  const found: Step[] = []
  const greedy = { temperature: 0, yieldEogToken: true }
  for await (const step of context.getSequence().evaluateWithMetadata(ids, { probabilities: true }, greedy)) {
    found.push({ token: step.token, probabilities: new Map([...step.probabilities].slice(0, 5)) })
    if (found.length === steps) break
  }
  await model.dispose()
  return found
}

/** The largest difference of probabilities. */
function difference(own: readonly Float32Array[], theirs: readonly Step[]): number {
  const all = theirs.flatMap(({ probabilities }, i) => {
    const most = Math.max(...own[i]!)
    const sum = own[i]!.reduce((total, value) => total + Math.exp(value - most), 0)
    return [...probabilities].map(([id, p]) => Math.abs(Math.exp(own[i]![id]! - most) / sum - p))
  })
  return Math.max(...all)
}

t.test('greedy tokens', { skip }, async t => {
  const llama = await installed!.getLlama({ gpu: false, build: 'never', logLevel: 'error' })
  const ids = Array.from({ length: 23 }, (_, i) => 3 + ((i * i * 7 + i) % 77))
  const compare = async (about: string, file: string, most: number): Promise<void> => {
    const model = await DecoderRows.open(file)
    const own = await model.greedy(ids, steps)
    await model.close()
    const theirs = await generate(llama, file, ids)
    t.strictSame(
      own.ids,
      theirs.map(({ token }) => token),
      about,
    )
    const error = difference(own.logits, theirs)
    t.ok(error < most, `${about}: probabilities differ by ${error}`)
  }
  // It rounds rows to f16 where weights are f16, and looks GELU up in a table of f16.
  for (const name of ['gpt2.F32', 'llama.F16', 'qwen2.F16'])
    await compare(name, dataPath('lm-golden', 'gguf', `${name}.gguf`), 0.01)
  for (const type of ['f32', 'f16'])
    await compare(
      `stories260K ${type}`,
      dataPath('llm', 'stories260K', 'gguf', `stories260K-${type}.gguf`),
      0.01,
    )
  const folder = t.testdir()
  for (const [name, config] of Object.entries(decoderConfigs)) {
    // It has windows in gemma2 only, and needs a token for each byte.
    const { sliding_window: _, ...rest } = config as ReferenceConfig
    const own = { ...(name === 'gemma2' ? config : rest), vocab_size: 259 } as ReferenceConfig
    const file = await writeDecoderGguf(path.join(folder, `${name}.gguf`), own, randomDecoder(own))
    await compare(name, file, 1e-3)
  }
  await llama.dispose()
})
