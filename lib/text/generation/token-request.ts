// token-request.ts: what somebody wants of a model, and the state of it while the model works on it.
import type { SampledToken, Sampler } from '../sampler.js'
import type { BlockPool } from './block-pool.js'

/** What is computed for rows: logits [rows, vocabulary], or states behind the last normalization [rows, hidden size]. */
export type RowOutput = 'logits' | 'hidden'

/** A sequence of tokens that a model goes through. */
export interface TokenRequest {
  /** Tokens to begin with, at least one. */
  readonly ids: readonly number[]
  /** Tokens that `next` adds at most. */
  readonly maxTokens: number
  /** What is wanted, and for which tokens: all of them, or the last ones only. */
  readonly output: RowOutput
  readonly rows: 'all' | 'last'
  readonly signal?: AbortSignal | undefined
  /** Chooses the token behind the last one, natively and together with those of other requests. */
  readonly sampler?: Sampler
  /**
   * Takes rows.
   * @param rows - [count, width]; valid during the call
   * @param first - position of the first row
   * @param token - what the sampler chose
   * @returns the next token; undefined at the end. Only looked at for the last of all tokens
   */
  next(rows: Float32Array, width: number, first: number, token?: SampledToken): number | undefined
}

/** The parent of the first block of a sequence: rotary embeddings of long ones give other keys. */
export const firstParent = (isLong: boolean): number => (isLong ? -1 : 0)

/** A request that is worked on. */
export class Sequence {
  readonly request: TokenRequest
  /** All tokens so far. */
  readonly ids: number[]
  /** Tokens whose keys and values are in the cache. */
  cached = 0
  /** Tokens of those that were found there. */
  reused = 0
  /** Whether rotary embeddings are those of long sequences. */
  isLong = false
  readonly #pool: BlockPool
  readonly #shortLength: number
  #blocks: number[] = []
  /** Serial number of the last block that is named, and how many are. */
  #parent = 0
  #named = 0

  /** @param shortLength - tokens up to which rotary embeddings are those of short sequences */
  constructor(request: TokenRequest, pool: BlockPool, shortLength: number) {
    this.request = request
    this.ids = [...request.ids]
    this.#pool = pool
    this.#shortLength = shortLength
  }

  get blocks(): readonly number[] {
    return this.#blocks
  }

  /** Tokens that the model has not seen. */
  get pending(): number {
    return this.ids.length - this.cached
  }

  /** Tokens that were added. */
  get added(): number {
    return this.ids.length - this.request.ids.length
  }

  /** Looks for a cache of the beginning. What has rows to give is computed in any case. */
  begin(): void {
    this.isLong = this.ids.length > this.#shortLength
    this.#parent = firstParent(this.isLong)
    if (this.request.rows === 'all') return
    // The last token has a row to give.
    const { blocks, serial } = this.#pool.findAll(this.#parent, this.ids.slice(0, -1))
    this.#blocks = blocks
    this.#parent = serial
    this.#named = blocks.length
    this.cached = this.#named * this.#pool.blockSize
    this.reused = this.cached
  }

  /** Takes blocks for `count` more tokens. False: there are not enough, and none was taken. */
  reserve(count: number): boolean {
    const wanted = Math.ceil((this.cached + count) / this.#pool.blockSize) - this.#blocks.length
    if (wanted > this.#pool.free) return false
    for (let i = 0; i < wanted; i++) this.#blocks.push(this.#pool.take()!)
    return true
  }

  /** Notes that the cache has `count` more tokens. */
  commit(count: number): void {
    this.cached += count
    const size = this.#pool.blockSize
    while ((this.#named + 1) * size <= this.cached) {
      this.#parent = this.#pool.name(this.#blocks[this.#named]!, this.#parent, this.#tokensOf(this.#named))
      this.#named++
    }
  }

  /** Adds a token. The cache is of no use any more where it makes the sequence a long one. */
  append(id: number): void {
    this.ids.push(id)
    if (this.isLong || this.ids.length <= this.#shortLength) return
    this.release()
    this.begin()
  }

  /** Gives all blocks back; the cache begins anew. */
  release(): void {
    for (const block of this.#blocks) this.#pool.release(block)
    this.#blocks = []
    this.#named = 0
    this.cached = 0
  }

  #tokensOf(block: number): number[] {
    const size = this.#pool.blockSize
    return this.ids.slice(block * size, (block + 1) * size)
  }
}
