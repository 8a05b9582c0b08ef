// A layer of encoders on a GPU: what its plan moves and launches, beside counts by hand.
import t from 'tap'
import { encoders, encoderTraffic } from '../../bench/gpu-static/encoders.js'

/** Bytes of a token for each element of its width, of what both encoders have in a layer. */
const products = 3 * (2 + 4) + (2 + 4 + 4) + (2 + 4 * 2) + (4 * 2 + 4 + 4)
const attention = 3 * 4 + 2

t.test('norms behind the sums store f32 for the next sum and 16 bits for products', async t => {
  const bytes = 128 * 384 * (products + attention + 2 * (4 + 4 + 2))
  t.strictSame(await encoderTraffic(encoders[0]!), { launches: 9, bytes })
})

t.test('norms in front of products store 16 bits alone', async t => {
  const bytes = 197 * 384 * (products + attention + 2 * (4 + 2))
  t.strictSame(await encoderTraffic(encoders[1]!), { launches: 9, bytes })
})
