// kept-cache.ts: keys and values of the beginning of a text outside of a model, as files of sessions have them.
import { createHash } from 'node:crypto'
import { type ElementArray, elementArrayOf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import type { ModelState } from '../../model/model-state.js'
import { type HostTensor, hostTensor } from '../../model/values.js'
import type { DecoderEngine } from './decoder-engine.js'

/** Keys and values of whole blocks of tokens. */
export interface KeptCache {
  /** The tokens. */
  readonly tokens: readonly number[]
  /** Whether rotary embeddings are those of long sequences. */
  readonly isLong: boolean
  /** What keys and values are rounded to. */
  readonly cacheType: string
  /** What says that a model would compute the same ones. */
  readonly fingerprint: string
  /** By the names of the caches: [blocks, …], as the model has them. */
  readonly states: ReadonlyMap<string, HostTensor>
}

/** Tokens that a fingerprint is made of. */
const probes = 8

/**
 * The SHA-256 of the sizes of a model and of the logits that it gives behind a few of the tokens, in hexadecimal digits. It changes
 * with the weights, and with all else that changes bits: precision, instruction set, what rows and caches are rounded to.
 */
async function fingerprintOf(engine: DecoderEngine, tokens: readonly number[]): Promise<string> {
  const hash = createHash('sha256').update(JSON.stringify([engine.sizes, engine.limits.blockSize]))
  const ids = Array.from({ length: probes }, (_, i) => tokens[Math.floor((i * tokens.length) / probes)]!)
  await engine.scheduler.submit({
    ids,
    maxTokens: 0,
    output: 'logits',
    rows: 'last',
    next(row) {
      hash.update(new Uint8Array(row.buffer, row.byteOffset, row.byteLength))
      return undefined
    },
  })
  return hash.digest('hex')
}

/** The elements of a block of a cache. */
function blockOf({ memory, shape }: ModelState, block: number): ElementArray {
  const count = numel(shape.slice(1))
  return memory.subarray(block * count, (block + 1) * count)
}

/** The elements of some blocks. */
function copyOf(state: ModelState, blocks: readonly number[]): HostTensor {
  const shape = [blocks.length, ...state.shape.slice(1)]
  const data = new (elementArrayOf(state.dtype))(numel(shape))
  const count = data.length / blocks.length
  for (const [i, block] of blocks.entries())
    copy(blockOf(state, block), data.subarray(i * count, (i + 1) * count))
  return hostTensor(state.dtype, shape, data)
}

/** Copies elements of one type. */
const copy = (from: ElementArray, to: ElementArray): void => (to as Float64Array).set(from as Float64Array)

/**
 * Copies the keys and values of the longest beginning of `ids` that the model has, in whole blocks; undefined: it has none, or has
 * them on other machines.
 * @throws SparkError ERR_DISPOSED
 */
export async function keepCache(
  engine: DecoderEngine,
  ids: readonly number[],
): Promise<KeptCache | undefined> {
  const { scheduler, runner, sizes, limits, cacheType } = engine
  if (!runner.visit) return undefined
  const isLong = ids.length > sizes.shortLength
  return scheduler.withBlocksOf(ids, isLong, async blocks => {
    if (blocks.length === 0) return undefined
    const tokens = ids.slice(0, blocks.length * limits.blockSize)
    const states = await runner.visit!(
      all => new Map([...all].map(([name, state]) => [name, copyOf(state, blocks)])),
    )
    return { tokens, isLong, cacheType, fingerprint: await fingerprintOf(engine, tokens), states }
  })
}

/**
 * Gives a model keys and values that were kept, where it would compute the same ones.
 * @param file - where they come from, for errors
 * @returns the tokens that it has now: none where something else would be computed, less than all where its cache is full
 * @throws SparkError ERR_FORMAT for caches that cannot be those of the model; ERR_DISPOSED
 */
export async function restoreCache(engine: DecoderEngine, kept: KeptCache, file: string): Promise<number> {
  const { scheduler, runner, sizes, limits } = engine
  const { tokens, states } = kept
  if (!runner.visit) return 0
  if (kept.cacheType !== engine.cacheType || tokens.some(id => id >= sizes.vocabularySize)) return 0
  if (kept.fingerprint !== (await fingerprintOf(engine, tokens))) return 0
  const count = tokens.length / limits.blockSize
  return scheduler.addBlocks(tokens, kept.isLong, (blocks, first) =>
    runner.visit!(all => {
      for (const [name, state] of all) {
        const { shape = [], dtype, data } = states.get(name) ?? {}
        const wanted = [count, ...state.shape.slice(1)]
        if (dtype !== state.dtype || `${shape}` !== `${wanted}`)
          throw new SparkError(
            'ERR_FORMAT',
            `${file}: '${name}' is not ${state.dtype} [${wanted.join(', ')}]`,
          )
        const size = numel(wanted) / count
        for (const [i, block] of blocks.entries())
          if (i >= first)
            copy((data as ElementArray).subarray(i * size, (i + 1) * size), blockOf(state, block))
      }
    }),
  )
}
