// feed-areas.ts: memory for copies of what callers feed, which the next run uses again.
import type { ValueInfo } from '../graph/graph.js'
import { copyFeeds, type Feeds } from './feeds.js'
import { copied, type HostTensor, type HostValue } from './values.js'

/** Bytes of a tensor below which new memory costs nothing, and above which memory that waits for a run costs too much. */
const [fewBytes, manyBytes] = [2 ** 14, 2 ** 26]

/** Copies of the feeds of a run. */
export interface CopiedFeeds {
  /** By the index of the input. */
  readonly values: readonly HostValue[]
  /** Lets another run use their memory. */
  release(): void
}

/** The memory for the inputs of a model, which one run has at a time. */
export class FeedAreas {
  #free: ArrayBuffer[] | undefined = []

  /** Lets the memory go, unless a run has it. */
  trim(): void {
    if (this.#free) this.#free = []
  }

  /**
   * Copies the feeds of a run, to new memory while another run has that of these areas.
   * @throws SparkError as {@link copyFeeds}
   */
  copy(inputs: readonly ValueInfo[], feeds: Feeds): CopiedFeeds {
    const areas = this.#free
    if (!areas) return { values: copyFeeds(inputs, feeds), release() {} }
    const values = copyFeeds(inputs, feeds, (tensor, i) => {
      const { data } = tensor
      if (!ArrayBuffer.isView(data) || data.byteLength < fewBytes || data.byteLength > manyBytes)
        return copied(tensor)
      if (data.byteLength > (areas[i]?.byteLength ?? 0)) areas[i] = new ArrayBuffer(2 * data.byteLength)
      return copiedTo(areas[i]!, tensor)
    })
    this.#free = undefined
    return {
      values,
      release: () => {
        this.#free = areas
      },
    }
  }
}

function copiedTo(area: ArrayBuffer, tensor: HostTensor): HostTensor {
  const data = tensor.data as Float32Array
  const type = data.constructor as Float32ArrayConstructor
  const copy = new type(area, 0, data.length)
  copy.set(data)
  return { ...tensor, data: copy }
}
