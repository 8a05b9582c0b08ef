// chain.ts: what the solvers see of a placement: a chain of layers, devices, and numbers.

/**
 * Layers in a row and devices, each of which may take one block of neighbours. Arrays are row-major; L is the number of layers, D that
 * of devices.
 */
export interface Chain {
  /** D. */
  readonly devices: number
  /** L. */
  readonly layers: number
  /** Of a layer on a device, [D, L]. */
  readonly seconds: Float64Array
  /** Of a step of a device, whatever it computes, [D]. */
  readonly fixed: Float64Array
  /** Begin of the longest block that ends in front of a layer and that a device can hold, [D, L + 1]; the end itself where none fits. */
  readonly first: Int32Array
  /** To send what enters a layer from a device to another, [D, D, L]; Infinity where they cannot reach each other. */
  readonly hops: Float64Array
  /** Bytes that must be moved for a layer to be on a device, [D, L]. */
  readonly moved: Float64Array
}

/** Neighbouring layers on one device. */
export interface Block {
  /** Index of the device. */
  readonly device: number
  /** Its first layer. */
  readonly from: number
  /** One behind its last layer. */
  readonly end: number
}

/** What a placement minimizes: the time of a step through all stages, or the time of the slowest stage or link. */
export type Objective = 'latency' | 'throughput'

/** Seconds of a block, without what is sent to it. */
export function blockSeconds({ seconds, fixed, layers }: Chain, { device, from, end }: Block): number {
  let sum = fixed[device]!
  for (let l = from; l < end; l++) sum += seconds[device * layers + l]!
  return sum
}

/** Seconds to send what a block needs; 0 for the first. */
export function hopSeconds(
  { hops, devices, layers }: Chain,
  blocks: readonly Block[],
  index: number,
): number {
  if (index === 0) return 0
  const [from, to] = [blocks[index - 1]!, blocks[index]!]
  return hops[(from.device * devices + to.device) * layers + to.from]!
}

/** Seconds of a step through all blocks. */
export const latencyOf = (chain: Chain, blocks: readonly Block[]): number =>
  blocks.reduce((sum, block, i) => sum + blockSeconds(chain, block) + hopSeconds(chain, blocks, i), 0)

/** Seconds of the slowest block or link: computing and sending overlap. */
export const bottleneckOf = (chain: Chain, blocks: readonly Block[]): number =>
  blocks.reduce(
    (slowest, block, i) => Math.max(slowest, blockSeconds(chain, block), hopSeconds(chain, blocks, i)),
    0,
  )

/** Seconds that an objective minimizes. */
export const objectiveOf = (chain: Chain, blocks: readonly Block[], objective: Objective): number =>
  objective === 'latency' ? latencyOf(chain, blocks) : bottleneckOf(chain, blocks)

/** Bytes that blocks have moved. */
export function movedBytes({ moved, layers }: Chain, blocks: readonly Block[]): number {
  let sum = 0
  for (const { device, from, end } of blocks)
    for (let l = from; l < end; l++) sum += moved[device * layers + l]!
  return sum
}

/** Seconds that no placement is below: each layer on its fastest device. */
export function lowerBound({ seconds, devices, layers }: Chain): number {
  let sum = 0
  for (let l = 0; l < layers; l++) {
    let fastest = Number.POSITIVE_INFINITY
    for (let d = 0; d < devices; d++) fastest = Math.min(fastest, seconds[d * layers + l]!)
    sum += fastest
  }
  return sum
}

/** Sums of a row of numbers for each device: [D, L + 1] of [D, L]. */
export function prefixSums(values: Float64Array, devices: number, layers: number): Float64Array {
  const sums = new Float64Array(devices * (layers + 1))
  for (let d = 0; d < devices; d++)
    for (let l = 0; l < layers; l++)
      sums[d * (layers + 1) + l + 1] = sums[d * (layers + 1) + l]! + values[d * layers + l]!
  return sums
}

/** What solvers minimize: a price for each layer on a device, for each device used, and for each hop. */
export interface Prices {
  /** [D, L]. */
  readonly layer: Float64Array
  /** [D]. */
  readonly device: Float64Array
  /** [D, D, L]. */
  readonly hop: Float64Array
  /** As {@link Chain.first}. */
  readonly first: Int32Array
}

/** The share of the optimum that bytes moved, or the second objective, may cost at most where they decide between equals. */
const tieShare = 1e-9

/** Prices of latency; between equals the one with the fewest bytes moved is the cheapest. */
export function latencyPrices(chain: Chain): Prices {
  const weight = tieWeight(chain.moved, lowerBound(chain))
  const layer = chain.seconds.map((seconds, i) => seconds + weight * chain.moved[i]!)
  return { layer, device: chain.fixed, hop: chain.hops, first: chain.first }
}

/**
 * Prices within a bottleneck of `limit` seconds: blocks and links above it are refused. Among the others the fewest bytes moved are the
 * cheapest, and between equals the lowest latency.
 */
export function limitedPrices(chain: Chain, limit: number): Prices {
  const total = chain.moved.reduce((a, b) => a + b, 0)
  const weight = total > 0 ? 1 / total : 0
  const share = total > 0 ? tieShare / limit / chain.layers : 1
  return {
    layer: chain.seconds.map((seconds, i) => share * seconds + weight * chain.moved[i]!),
    device: chain.fixed.map(seconds => share * seconds),
    hop: chain.hops.map(seconds => (seconds <= limit ? share * seconds : Number.POSITIVE_INFINITY)),
    first: limitedFirst(chain, limit),
  }
}

function tieWeight(moved: Float64Array, scale: number): number {
  const total = moved.reduce((a, b) => a + b, 0)
  return total > 0 ? (tieShare * scale) / total : 0
}

/** As {@link Chain.first}, for blocks of at most `limit` seconds. */
export function limitedFirst(chain: Chain, limit: number, sums = sumsOf(chain)): Int32Array {
  const { devices, layers, first, fixed } = chain
  const limited = new Int32Array(first.length)
  for (let d = 0; d < devices; d++) {
    const row = d * (layers + 1)
    const own = limit - fixed[d]! + 1e-12 * limit
    let p = 0
    for (let q = 0; q <= layers; q++) {
      p = Math.max(p, first[row + q]!)
      while (p < q && sums[row + q]! - sums[row + p]! > own) p++
      limited[row + q] = p
    }
  }
  return limited
}

/** Sums of seconds, [D, L + 1]. */
export const sumsOf = ({ seconds, devices, layers }: Chain): Float64Array =>
  prefixSums(seconds, devices, layers)

/** Bottlenecks that a placement may have, ascending: times of all blocks that fit, and of all hops. */
export function bottlenecks(chain: Chain): Float64Array {
  const { devices, layers, first, fixed, hops } = chain
  const sums = sumsOf(chain)
  const found: number[] = []
  // Some block has at least as much as the fastest device takes for the share of each.
  const floor = lowerBound(chain) / devices / 2
  for (let d = 0; d < devices; d++) {
    const row = d * (layers + 1)
    for (let q = 1; q <= layers; q++)
      for (let p = first[row + q]!; p < q; p++) {
        const seconds = sums[row + q]! - sums[row + p]! + fixed[d]!
        if (seconds >= floor) found.push(seconds)
      }
  }
  for (const seconds of new Set(hops))
    if (seconds >= floor && seconds < Number.POSITIVE_INFINITY) found.push(seconds)
  return Float64Array.from(found).sort()
}

/** The smallest of ascending limits for which `fits` holds; undefined when it holds for none. */
export function smallestLimit(limits: Float64Array, fits: (limit: number) => boolean): number | undefined {
  if (limits.length === 0 || !fits(limits[limits.length - 1]!)) return undefined
  let [low, high] = [0, limits.length - 1]
  while (low < high) {
    const middle = (low + high) >> 1
    if (fits(limits[middle]!)) high = middle
    else low = middle + 1
  }
  return limits[low]
}
