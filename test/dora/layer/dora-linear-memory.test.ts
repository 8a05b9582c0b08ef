// What a DoRALinear layer is made of, and what becomes of it when a caller hands it on to another thread.
import { DoRALinear, type Precision } from 'dgx-spark'
import t from 'tap'
import { backends } from '../../fixtures/backends.js'
import { transfer } from '../../fixtures/values/odd-values.js'
import { randomGenerator } from '../../fixtures/values/random.js'
import { randomTensors } from '../../fixtures/values/random-tensors.js'

const [outs, ins] = [17, 48] // nvfp4 needs a multiple of 16
const precisions: readonly Precision[] = ['fp32', 'fp16', 'bf16', 'fp8', 'nvfp4']
const tensor = randomTensors(randomGenerator(42))

t.test('what a layer is made of may be handed on', async t => {
  for (const precision of precisions) {
    for (const backend of backends) {
      const own = { weight: tensor(outs, ins), bias: tensor(outs) }
      const x = tensor(5, ins)
      const initial = { b: tensor(outs, 5), magnitude: tensor(outs) }
      using layer = await DoRALinear.fromLinear(own, { rank: 5, alpha: 7, precision, backend, initial })
      const before = (await layer.forward(x)).data
      const arrays = [own.bias.data, initial.b.data, initial.magnitude.data]
      for (const array of backend === 'cpu' ? [...arrays, own.weight.data] : arrays) transfer(array)
      t.equal(own.bias.data.length, 0)
      t.strictSame((await layer.forward(x)).data, before, `${precision} on ${backend}`)
      transfer(x.data)
      await t.rejects(layer.forward(x), { code: 'ERR_DISPOSED', message: /^x lies in memory/ })
    }
  }
})
