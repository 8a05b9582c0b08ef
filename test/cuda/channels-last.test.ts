// Convolutions of a model in 16 bits, against the fake driver: weights are laid out once, images packed in each run.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { integrated } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

/** What two runs of convolutions of 3 x 3 to 64 filters launch, the second to as many as it reads: one by one, then captured. */
async function launched(channels: number, isChain = false, size = 8): Promise<string[]> {
  const script = `
    import { Model, Tensor } from 'dgx-spark'
    import { ints } from '#lib/graph/attributes.js'
    import { Constant } from '#lib/graph/constant.js'
    import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
    const channels = ${channels}
    const weight = Constant.from('f32', [64, channels, 3, 3], new Float32Array(64 * channels * 9))
    const next = Constant.from('f32', [64, 64, 3, 3], new Float32Array(64 * 64 * 9))
    const conv = (x, w, y) => makeNode('Conv', [x, w], [y], { attributes: { pads: ints([1, 1, 1, 1]) } })
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [1, channels, ${size}, ${size}]) }], outputs: [{ name: 'y' }],
      nodes: [conv('x', 'w', ${isChain} ? 'h' : 'y'), ...(${isChain} ? [conv('h', 'w2', 'y')] : [])],
      initializers: new Map([['w', weight], ...(${isChain} ? [['w2', next]] : [])]),
    })
    const model = await Model.fromGraph(graph, { backend: 'cuda', precision: 'bf16' })
    for (let run = 0; run < 2; ++run) await model.run({ x: Tensor.ones([1, channels, ${size}, ${size}]) })
    model.dispose()
    console.log('null')`
  const { env, lines } = machine(fakeDriver, integrated)
  await scriptResult(script, env)
  return lines('launch').map(line => line.split(' ')[1]!)
}

const isConv = (kernel: string): boolean => kernel.startsWith('conv_')

t.test('many channels', async t => {
  const run = ['conv_image_bf16', 'conv_channels_last_bf16_64']
  const kernels = await launched(20)
  t.strictSame(kernels.filter(isConv), [...run, ...run])
  t.equal(kernels.filter(name => name.startsWith('copy_')).length, 2, 'zeros and the weight, once')
})

t.test('a chain packs its first image alone', async t => {
  const run = ['conv_image_bf16', 'conv_channels_last_bf16_64', 'conv_channels_last_bf16_64']
  t.strictSame((await launched(20, true)).filter(isConv), [...run, ...run])
})

t.test('wide convolutions of 3 x 3 are in tiles of 2 x 2, whose weight is transformed once', async t => {
  const run = ['conv_image_bf16', 'conv_winograd_bf16', 'conv_winograd_bf16']
  const kernels = await launched(64, true, 16)
  t.strictSame(kernels.filter(isConv), [...run, ...run])
  t.equal(kernels.filter(name => name.startsWith('copy_strided')).length, 2, 'a weight of each')
  t.equal(kernels.filter(name => name.startsWith('linear')).length, 2)
})

t.test('few channels', async t => {
  const run = ['conv_pack_bf16', 'conv_mma_64']
  t.strictSame((await launched(12)).filter(isConv), [...run, ...run])
})
