// merkle.ts: Merkle trees of RFC 6962 and RFC 9162 (SHA-256): roots, proofs and their checks.
import { createHash } from 'node:crypto'
import { SparkError } from '../../core/errors.js'

const hashBytes = 32

const sha256 = (...parts: readonly Uint8Array[]): Buffer => {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part)
  return hash.digest()
}

const [leafPrefix, nodePrefix] = [Buffer.of(0), Buffer.of(1)]

/** The hash of a leaf. */
export const leafHash = (data: Uint8Array): Buffer => sha256(leafPrefix, data)

/** The hash of an inner node. */
const nodeHash = (left: Uint8Array, right: Uint8Array): Buffer => sha256(nodePrefix, left, right)

/** The root of a tree without leaves. */
export const emptyRoot = sha256()

/** Hashes that are appended, 32 bytes each. */
class HashList {
  #bytes = Buffer.alloc(hashBytes * 16)
  count = 0

  push(hash: Uint8Array): void {
    const end = this.count * hashBytes
    if (end === this.#bytes.byteLength) this.#bytes = Buffer.concat([this.#bytes], 2 * end)
    this.#bytes.set(hash, end)
    this.count++
  }

  at(index: number): Buffer {
    return this.#bytes.subarray(index * hashBytes, (index + 1) * hashBytes)
  }
}

/** The largest power of two below n. */
const splitOf = (n: number): number => 2 ** Math.floor(Math.log2(n - 1))

/**
 * A tree that leaves are appended to. It keeps the hash of each perfect subtree, 64 bytes a leaf, so that an append costs two
 * hashes on average, and roots and proofs O(log² n).
 */
export class MerkleTree {
  /** Hashes of the perfect subtrees of 2^k leaves, from left to right, for each k. */
  readonly #levels: HashList[] = []

  /** Leaves. */
  get size(): number {
    return this.#levels[0]?.count ?? 0
  }

  /** The root. */
  get root(): Buffer {
    return this.rootAt(this.size)
  }

  /** Appends a leaf by its hash. */
  append(leaf: Uint8Array): void {
    let hash = leaf
    for (let level = 0; ; level++) {
      this.#levels[level] ??= new HashList()
      const list = this.#levels[level]!
      list.push(hash)
      if (list.count % 2 === 1) return
      hash = nodeHash(list.at(list.count - 2), list.at(list.count - 1))
    }
  }

  /** The root that the tree had with `size` leaves. @throws SparkError ERR_RANGE */
  rootAt(size: number): Buffer {
    this.#expectSize(size)
    return size === 0 ? emptyRoot : this.#subtree(0, size)
  }

  /**
   * Proof that leaf `index` is in the tree of `size` leaves (RFC 9162, 2.1.3.1).
   * @throws SparkError ERR_RANGE
   */
  inclusionProof(index: number, size = this.size): Buffer[] {
    this.#expectSize(size)
    if (!Number.isSafeInteger(index) || index < 0 || index >= size)
      throw new SparkError('ERR_RANGE', `there is no leaf ${index} in a tree of ${size}`)
    const proof: Buffer[] = []
    let [begin, n] = [0, size]
    while (n > 1) {
      const k = splitOf(n)
      if (index - begin < k) {
        proof.unshift(this.#subtree(begin + k, n - k))
        n = k
      } else {
        proof.unshift(this.#subtree(begin, k))
        begin += k
        n -= k
      }
    }
    return proof
  }

  /**
   * Proof that the tree of `size` leaves begins with the one of `oldSize` (RFC 9162, 2.1.4.1).
   * @throws SparkError ERR_RANGE
   */
  consistencyProof(oldSize: number, size = this.size): Buffer[] {
    this.#expectSize(size)
    if (!Number.isSafeInteger(oldSize) || oldSize < 0 || oldSize > size)
      throw new SparkError('ERR_RANGE', `a tree of ${size} leaves does not begin with one of ${oldSize}`)
    if (oldSize === 0 || oldSize === size) return []
    const proof: Buffer[] = []
    let [begin, n, m, isWhole] = [0, size, oldSize, true]
    while (m !== n) {
      const k = splitOf(n)
      if (m <= k) {
        proof.unshift(this.#subtree(begin + k, n - k))
        n = k
      } else {
        proof.unshift(this.#subtree(begin, k))
        begin += k
        n -= k
        m -= k
        isWhole = false
      }
    }
    return isWhole ? proof : [this.#subtree(begin, n), ...proof]
  }

  /** The hash of leaves [begin, begin + n), where begin is a multiple of the largest power of two in n. */
  #subtree(begin: number, n: number): Buffer {
    const level = Math.log2(n)
    if (Number.isInteger(level)) return Buffer.from(this.#levels[level]!.at(begin / n))
    const k = splitOf(n)
    return nodeHash(this.#subtree(begin, k), this.#subtree(begin + k, n - k))
  }

  #expectSize(size: number): void {
    if (!Number.isSafeInteger(size) || size < 0 || size > this.size)
      throw new SparkError('ERR_RANGE', `the tree has ${this.size} leaves, not ${size}`)
  }
}

/** Whether `proof` shows that a leaf is the one with `index` in the tree of `size` leaves with `root` (RFC 9162, 2.1.3.2). */
export function isIncluded(
  leaf: Uint8Array,
  index: number,
  size: number,
  root: Uint8Array,
  proof: readonly Uint8Array[],
): boolean {
  if (!isCount(index) || !isCount(size) || index >= size) return false
  let [fn, sn] = [BigInt(index), BigInt(size - 1)]
  let hash: Uint8Array = leaf
  for (const part of proof) {
    if (sn === 0n) return false
    if (fn & 1n || fn === sn) {
      hash = nodeHash(part, hash)
      while (!(fn & 1n) && fn !== 0n) [fn, sn] = [fn >> 1n, sn >> 1n]
    } else hash = nodeHash(hash, part)
    ;[fn, sn] = [fn >> 1n, sn >> 1n]
  }
  return sn === 0n && isEqual(hash, root)
}

/** Whether `proof` shows that the tree of `size` leaves begins with the one of `oldSize` (RFC 9162, 2.1.4.2). */
export function isConsistent(
  oldSize: number,
  size: number,
  oldRoot: Uint8Array,
  root: Uint8Array,
  proof: readonly Uint8Array[],
): boolean {
  if (!isCount(oldSize) || !isCount(size) || oldSize > size) return false
  if (oldSize === 0) return proof.length === 0 && isEqual(oldRoot, emptyRoot)
  if (oldSize === size) return proof.length === 0 && isEqual(oldRoot, root)
  if (proof.length === 0) return false
  const isPower = Number.isInteger(Math.log2(oldSize))
  const [first, ...rest] = isPower ? [oldRoot, ...proof] : proof
  let [fn, sn] = [BigInt(oldSize - 1), BigInt(size - 1)]
  while (fn & 1n) [fn, sn] = [fn >> 1n, sn >> 1n]
  let [fr, sr] = [first!, first!]
  for (const part of rest) {
    if (sn === 0n) return false
    if (fn & 1n || fn === sn) {
      ;[fr, sr] = [nodeHash(part, fr), nodeHash(part, sr)]
      while (!(fn & 1n) && fn !== 0n) [fn, sn] = [fn >> 1n, sn >> 1n]
    } else sr = nodeHash(sr, part)
    ;[fn, sn] = [fn >> 1n, sn >> 1n]
  }
  return sn === 0n && isEqual(fr, oldRoot) && isEqual(sr, root)
}

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 0

const isEqual = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0
