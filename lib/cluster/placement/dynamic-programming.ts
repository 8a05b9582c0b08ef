// dynamic-programming.ts: exact placements of a chain of layers: any order of devices, any subset of them.
import {
  type Block,
  bottlenecks,
  type Chain,
  latencyPrices,
  limitedFirst,
  limitedPrices,
  type Objective,
  type Prices,
  prefixSums,
  smallestLimit,
  sumsOf,
} from './chain.js'

/** Devices that a set of bits is searched over: memory grows with 2^D · D · L. */
export const maxExactDevices = 10

/**
 * The placement that minimizes the objective, exactly; undefined when none fits. Sets of used devices are bits: the cheapest way to
 * have put the first q layers on the devices of a set, the last of them on d, follows from the sets without d, with the minimum over
 * the begins of the block as that of a sliding window: 2^D · D · L · D / 2 steps. A bottleneck is the smallest limit for which blocks
 * and hops that are within it reach the last layer.
 * @param chain - of at most {@link maxExactDevices} devices
 * @param required - devices that must be used, as bits
 */
export function solveExactly(chain: Chain, objective: Objective, required = 0): Block[] | undefined {
  const table = new Float64Array((1 << chain.devices) * chain.devices * (chain.layers + 1))
  if (objective === 'latency') return cheapest(chain, latencyPrices(chain), required, table)
  const sums = sumsOf(chain)
  const reached = new Uint8Array(table.length)
  const limit = smallestLimit(bottlenecks(chain), seconds =>
    reaches(chain, limitedFirst(chain, seconds, sums), seconds, required, reached),
  )
  return limit === undefined ? undefined : cheapest(chain, limitedPrices(chain, limit), required, table)
}

/** The cheapest placement. `table` [2^D, D, L + 1]: the price of the first q layers on a set of devices, the last block on one of them. */
function cheapest(
  { devices, layers }: Chain,
  prices: Prices,
  required: number,
  table: Float64Array,
): Block[] | undefined {
  const sums = prefixSums(prices.layer, devices, layers)
  const width = layers + 1
  const entry = new Float64Array(width)
  const queue = new Int32Array(width)
  for (let set = 1; set < 1 << devices; set++)
    for (let d = 0; d < devices; d++) {
      if (((set >> d) & 1) === 0) continue
      enter(entry, table, prices, devices, layers, set, d)
      extend(
        table.subarray((set * devices + d) * width, (set * devices + d + 1) * width),
        entry,
        sums,
        prices.first,
        d,
        queue,
      )
    }
  let [best, bestSet, bestDevice] = [Number.POSITIVE_INFINITY, 0, 0]
  for (let set = 1; set < 1 << devices; set++)
    for (let d = 0; (set & required) === required && d < devices; d++) {
      const price =
        ((set >> d) & 1) === 1 ? table[(set * devices + d) * width + layers]! : Number.POSITIVE_INFINITY
      if (price < best) [best, bestSet, bestDevice] = [price, set, d]
    }
  if (best === Number.POSITIVE_INFINITY) return undefined
  return trace({ devices, layers, prices, table, sums, entry }, bestSet, bestDevice)
}

/** The cheapest price of having the first p layers on a set without d, and what enters layer p on d, for each p. */
function enter(
  entry: Float64Array,
  table: Float64Array,
  { hop, device }: Prices,
  devices: number,
  layers: number,
  set: number,
  d: number,
): void {
  const before = set & ~(1 << d)
  entry.fill(Number.POSITIVE_INFINITY)
  if (before === 0) entry[0] = device[d]!
  for (let last = 0; last < devices; last++) {
    if (((before >> last) & 1) === 0) continue
    const row = (before * devices + last) * (layers + 1)
    const link = (last * devices + d) * layers
    for (let p = 1; p < layers; p++) {
      const price = table[row + p]! + hop[link + p]! + device[d]!
      if (price < entry[p]!) entry[p] = price
    }
  }
}

/** Prices behind a block on d: the minimum over its begins is that of a window which only moves on. */
function extend(
  row: Float64Array,
  entry: Float64Array,
  sums: Float64Array,
  first: Int32Array,
  d: number,
  queue: Int32Array,
): void {
  const offset = d * row.length
  let [head, tail] = [0, 0]
  row[0] = Number.POSITIVE_INFINITY
  for (let q = 1; q < row.length; q++) {
    const price = entry[q - 1]! - sums[offset + q - 1]!
    if (price < Number.POSITIVE_INFINITY) {
      while (tail > head && entry[queue[tail - 1]!]! - sums[offset + queue[tail - 1]!]! >= price) tail--
      queue[tail++] = q - 1
    }
    const begin = first[offset + q]!
    while (head < tail && queue[head]! < begin) head++
    row[q] =
      head < tail
        ? entry[queue[head]!]! - sums[offset + queue[head]!]! + sums[offset + q]!
        : Number.POSITIVE_INFINITY
  }
}

interface Solved {
  readonly devices: number
  readonly layers: number
  readonly prices: Prices
  readonly table: Float64Array
  readonly sums: Float64Array
  readonly entry: Float64Array
}

/** The blocks that a price in the table comes from, found from the last to the first. */
function trace(
  { devices, layers, prices, table, sums, entry }: Solved,
  set: number,
  device: number,
): Block[] {
  const blocks: Block[] = []
  const width = layers + 1
  let [q, d, used] = [layers, device, set]
  for (;;) {
    enter(entry, table, prices, devices, layers, used, d)
    let from = prices.first[d * width + q]!
    for (let p = from; p < q; p++)
      if (entry[p]! - sums[d * width + p]! < entry[from]! - sums[d * width + from]!) from = p
    blocks.push({ device: d, from, end: q })
    used &= ~(1 << d)
    if (used === 0) return blocks.reverse()
    const to = d
    let best = Number.POSITIVE_INFINITY
    for (let last = 0; last < devices; last++) {
      if (((used >> last) & 1) === 0) continue
      const price =
        table[(used * devices + last) * width + from]! + prices.hop[(last * devices + to) * layers + from]!
      if (price < best) [best, d] = [price, last]
    }
    q = from
  }
}

/** Whether blocks within `first` and hops of at most `limit` seconds reach the last layer. `reached` [2^D, D, L + 1]: 1 where they do. */
function reaches(
  { devices, layers, hops }: Chain,
  first: Int32Array,
  limit: number,
  required: number,
  reached: Uint8Array,
): boolean {
  const width = layers + 1
  const entry = new Uint8Array(width)
  for (let set = 1; set < 1 << devices; set++)
    for (let d = 0; d < devices; d++) {
      if (((set >> d) & 1) === 0) continue
      const before = set & ~(1 << d)
      entry.fill(0)
      if (before === 0) entry[0] = 1
      for (let last = 0; last < devices; last++) {
        if (((before >> last) & 1) === 0) continue
        const row = (before * devices + last) * width
        const link = (last * devices + d) * layers
        for (let p = 1; p < layers; p++) if (reached[row + p] === 1 && hops[link + p]! <= limit) entry[p] = 1
      }
      const row = (set * devices + d) * width
      reached[row] = 0
      let latest = -1
      for (let q = 1; q <= layers; q++) {
        if (entry[q - 1] === 1) latest = q - 1
        reached[row + q] = latest >= first[d * width + q]! ? 1 : 0
      }
      if (reached[row + layers] === 1 && (set & required) === required) return true
    }
  return false
}
