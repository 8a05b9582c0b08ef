// hold-weight.ts: residency of frozen weights: in the memory of a GPU, or in panels for the CPU.
import { argumentError } from '../core/checks.js'
import { elementArrayOf } from '../core/dtype.js'
import { expectWeight } from '../weights/encode.js'
import { formatInfo } from '../weights/formats.js'
import { bytesOfRows, type LazyWeight, weightOfBytes } from '../weights/lazy-weight.js'
import { panelRows, panelSizes } from '../weights/panels.js'
import { arraysOf, releaseWeight, type Weight } from '../weights/weight.js'
import { allocate } from './aligned.js'
import type { HeldArray, Kernels } from './kernels.js'

/**
 * Puts `weight` where `kernels` read it without a copy in each call: into the memory of a GPU, or into panels for the
 * CPU, whose products need no transposition then. The arrays given are free as soon as the call returns, but for those of
 * a weight in panels on the CPU, which are held.
 * @returns a weight that may own its memory: free it with {@link releaseWeight}; `weight` itself where it lies well
 * @throws SparkError ERR_OUT_OF_MEMORY
 */
export async function holdWeight(kernels: Kernels, weight: Weight): Promise<Weight> {
  if (typeof kernels?.hold !== 'function') throw argumentError('kernels', 'what openKernels gives', kernels)
  expectWeight('weight', weight)
  if (kernels.backend === 'cpu' && weight.layout !== 'panels') return inPanels(kernels, weight)
  const held: HeldArray[] = []
  const owner = {
    [Symbol.dispose]() {
      for (const array of held.splice(0)) array.dispose()
    },
  }
  try {
    const given = arraysOf(weight)
    for (const [, array] of given) held.push(await kernels.hold(array))
    if (held.every(({ array }, i) => array === given[i]![1])) return weight
    const arrays = given.map(([name], i) => [name, held[i]!.array])
    return { ...weight, ...Object.fromEntries(arrays), owner }
  } catch (error) {
    owner[Symbol.dispose]()
    throw error
  }
}

type Data = Weight['data']
type ArrayOnBuffer = new (buffer: ArrayBuffer, offset: number, length: number) => Data

/** Memory for the panels of a weight. */
function panelsFor(kernels: Kernels, weight: Pick<Weight, 'format' | 'rows' | 'cols'>): Data {
  const type = elementArrayOf(formatInfo(weight.format).dtype)
  const { data } = panelSizes(weight)
  const { buffer, offset } = allocate(data * type.BYTES_PER_ELEMENT, kernels)
  return new (type as unknown as ArrayOnBuffer)(buffer, offset, data)
}

async function inPanels(kernels: Kernels, weight: Weight): Promise<Weight> {
  const sizes = panelSizes(weight)
  const arrays = {
    data: panelsFor(kernels, weight),
    ...('rowScale' in weight && { rowScale: weight.rowScale.slice() }),
    ...('blockScale' in weight && { blockScale: new Uint8Array(sizes.blockScale) }),
  }
  for (const array of Object.values(arrays)) kernels.hold(array)
  const { data, blockScale } = arrays
  await kernels.run('packWeight', { weight, data, blockScale })
  return { ...weight, ...arrays, layout: 'panels' } as Weight
}

/** Bytes of a file that are read while those before them are packed, unless a panel has more. */
const pieceBytes = 1 << 22

/** Puts weights that are in files into panels for the CPU, some rows at a time: they are never in memory twice. */
export class PanelLoader {
  readonly #kernels: Kernels
  /** One is packed while the other is read. */
  readonly #pieces = [new Uint8Array(0), new Uint8Array(0)]

  /** @param kernels - of the CPU */
  constructor(kernels: Kernels) {
    this.#kernels = kernels
  }

  /**
   * Reads and packs a weight.
   * @throws SparkError ERR_OUT_OF_MEMORY, and what reading the file does
   */
  async load(weight: LazyWeight): Promise<Weight> {
    if (!weight.loadRows) return inPanels(this.#kernels, await weight.load(this.#kernels.release))
    const { format, rows, cols } = weight
    const panels = panelsFor(this.#kernels, weight)
    this.#kernels.hold(panels)
    const panel = panelSizes({ format, rows: panelRows, cols }).data
    const step = panelRows * Math.max(1, Math.floor(pieceBytes / bytesOfRows(weight, panelRows)))
    let reading = this.#read(weight, 0, step)
    for (let from = 0; from < rows; from += step) {
      const bytes = await reading
      const count = Math.min(step, rows - from)
      const data = panels.subarray((from / panelRows) * panel, Math.ceil((from + count) / panelRows) * panel)
      reading = this.#read(weight, from + step, step)
      const packing = this.#kernels.run('packWeight', { weight: weightOfBytes(weight, count, bytes), data })
      // Neither goes on when the other one fails.
      await Promise.allSettled([packing, reading])
      await packing
    }
    return { format, rows, cols, data: panels, layout: 'panels' } as Weight
  }

  /** Reads `step` rows, or those that are left, to the piece that is not packed at the moment. */
  async #read(weight: LazyWeight, from: number, step: number): Promise<Uint8Array> {
    const bytes = this.#next(bytesOfRows(weight, Math.max(0, Math.min(step, weight.rows - from))))
    if (bytes.length > 0) await weight.loadRows!(from, bytes)
    return bytes
  }

  #next(count: number): Uint8Array {
    const [piece] = this.#pieces.splice(0, 1)
    const enough = piece!.byteLength < count ? new Uint8Array(count) : piece!
    if (enough !== piece) this.#kernels.hold(enough)
    this.#pieces.push(enough)
    return enough.subarray(0, count)
  }
}

/** Deferred release of the weights that a layer no longer needs: never under an operation that was started before. */
export class DeferredRelease {
  #pending = 0
  #waiting: Weight[] = []

  /** Runs `operation`; what is released meanwhile is freed after it. */
  async during<T>(operation: () => Promise<T>): Promise<T> {
    this.#pending++
    try {
      return await operation()
    } finally {
      this.#pending--
      this.release(null)
    }
  }

  /** Frees `weight`, if there is one, as soon as nothing is pending. */
  release(weight: Weight | null): void {
    if (weight) this.#waiting.push(weight)
    if (this.#pending === 0) for (const waiting of this.#waiting.splice(0)) releaseWeight(waiting)
  }
}
