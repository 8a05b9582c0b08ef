// block-pool.ts: the memory of keys and values, in blocks that sequences share where they begin alike.

/** A full block whose tokens are known: it can be found again by them and by what lies before it. */
interface KnownBlock {
  readonly key: string
  /** Number that no other block ever has. */
  readonly serial: number
}

/** Hands out blocks. A block that nobody uses keeps its contents until its memory is needed, the one not used for longest first. */
export class BlockPool {
  /** Tokens of a block. */
  readonly blockSize: number
  /** Blocks there are. */
  readonly count: number
  readonly #users: Int32Array
  /** Blocks without users, in the order in which they are given out. */
  readonly #free: Set<number>
  readonly #known = new Map<number, KnownBlock>()
  readonly #byKey = new Map<string, number>()
  #serial = 1

  constructor(count: number, blockSize: number) {
    this.count = count
    this.blockSize = blockSize
    this.#users = new Int32Array(count)
    this.#free = new Set(Array.from({ length: count }, (_, block) => block))
  }

  /** Blocks without users. */
  get free(): number {
    return this.#free.size
  }

  /** A block for one user, whose contents are of no use any more; undefined: all have users. */
  take(): number | undefined {
    const [block] = this.#free
    if (block === undefined) return undefined
    this.#forget(block)
    this.#free.delete(block)
    this.#users[block] = 1
    return block
  }

  /** Gives a block back. */
  release(block: number): void {
    this.#users[block]!--
    if (this.#users[block] === 0) this.#free.add(block)
  }

  /**
   * Says what a full block has in it.
   * @param parent - serial number of the block before it; of the first one 0, or another number below 1 for other contents
   * @returns its serial number
   */
  name(block: number, parent: number, tokens: readonly number[]): number {
    const known = this.#known.get(block)
    if (known) return known.serial
    const key = keyOf(parent, tokens)
    const serial = this.#serial++
    if (this.#byKey.has(key)) return this.#known.get(this.#byKey.get(key)!)!.serial
    this.#known.set(block, { key, serial })
    this.#byKey.set(key, block)
    return serial
  }

  /** The block of these tokens behind that block, for one more user, and its serial number. */
  find(parent: number, tokens: readonly number[]): { block: number; serial: number } | undefined {
    const block = this.#byKey.get(keyOf(parent, tokens))
    if (block === undefined) return undefined
    this.#users[block]!++
    this.#free.delete(block)
    return { block, serial: this.#known.get(block)!.serial }
  }

  /** The blocks that tokens begin with behind a block, each for one more user, and the serial number of the last one. */
  findAll(parent: number, tokens: readonly number[]): { blocks: number[]; serial: number } {
    const blocks: number[] = []
    let serial = parent
    for (let at = 0; at + this.blockSize <= tokens.length; at += this.blockSize) {
      const found = this.find(serial, tokens.slice(at, at + this.blockSize))
      if (!found) break
      blocks.push(found.block)
      serial = found.serial
    }
    return { blocks, serial }
  }

  /** Forgets the contents of the blocks without users. */
  forgetUnused(): void {
    for (const block of this.#free) this.#forget(block)
  }

  /** Forgets the contents of all blocks. */
  forgetAll(): void {
    this.#known.clear()
    this.#byKey.clear()
  }

  #forget(block: number): void {
    const known = this.#known.get(block)
    if (!known) return
    this.#known.delete(block)
    this.#byKey.delete(known.key)
  }
}

const keyOf = (parent: number, tokens: readonly number[]): string => `${parent}:${tokens.join(',')}`
