// ordered.ts: the best placement where the order of the devices is given; any of them may be left out.
import {
  type Block,
  bottlenecks,
  type Chain,
  latencyPrices,
  limitedPrices,
  type Objective,
  type Prices,
  prefixSums,
  smallestLimit,
} from './chain.js'

/**
 * The best placement with devices in the order of their indices; undefined when none fits. It repairs what a model of equal layers
 * decided, with the layers as they are: D² · L steps.
 */
export function solveInOrder(chain: Chain, objective: Objective): Block[] | undefined {
  if (objective === 'latency') return cheapestInOrder(chain, latencyPrices(chain))
  const limit = smallestLimit(
    bottlenecks(chain),
    seconds => cheapestInOrder(chain, limitedPrices(chain, seconds)) !== undefined,
  )
  return limit === undefined ? undefined : cheapestInOrder(chain, limitedPrices(chain, limit))
}

/** [D, L + 1]: the price of the first q layers with the last block on d, as in `solveExactly`, for one order. */
function cheapestInOrder({ devices, layers }: Chain, prices: Prices): Block[] | undefined {
  const width = layers + 1
  const sums = prefixSums(prices.layer, devices, layers)
  const table = new Float64Array(devices * width).fill(Number.POSITIVE_INFINITY)
  const from = new Int32Array(devices * width)
  const before = new Int32Array(devices * width)
  const entry = new Float64Array(width)
  for (let d = 0; d < devices; d++) {
    entry.fill(Number.POSITIVE_INFINITY)
    entry[0] = prices.device[d]!
    for (let last = 0; last < d; last++)
      for (let p = 1; p < layers; p++) {
        const price =
          table[last * width + p]! + prices.hop[(last * devices + d) * layers + p]! + prices.device[d]!
        if (price < entry[p]!) {
          entry[p] = price
          before[d * width + p] = last
        }
      }
    for (let q = 1; q <= layers; q++)
      for (let p = prices.first[d * width + q]!; p < q; p++) {
        const price = entry[p]! + sums[d * width + q]! - sums[d * width + p]!
        if (price >= table[d * width + q]!) continue
        table[d * width + q] = price
        from[d * width + q] = p
      }
  }
  let device = 0
  for (let d = 1; d < devices; d++)
    if (table[d * width + layers]! < table[device * width + layers]!) device = d
  if (devices === 0 || table[device * width + layers] === Number.POSITIVE_INFINITY) return undefined
  const blocks: Block[] = []
  for (let end = layers; end > 0; ) {
    const begin = from[device * width + end]!
    blocks.push({ device, from: begin, end })
    device = before[device * width + begin]!
    end = begin
  }
  return blocks.reverse()
}
