// The launches of a decoder's layer that an ONNX model spells out in standard operators, against the fake driver.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

/** What a run of some layers launches behind `past` tokens, whose keys and values are inputs. */
async function launched(layers: number, tokens: number, past: number): Promise<string[]> {
  const script = `
    import { Model, Tensor } from 'dgx-spark'
    import { float, int } from '#lib/graph/attributes.js'
    import { Constant } from '#lib/graph/constant.js'
    import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
    const [layers, tokens, past] = [${layers}, ${tokens}, ${past}]
    const [hidden, inner, heads, own, depth] = [256, 512, 4, 2, 64]
    const [nodes, inputs, outputs] = [[], [{ name: 'x', type: tensorType('f32', [1, tokens, hidden]) }], []]
    const initializers = new Map()
    const weight = (name, ...shape) => {
      initializers.set(name, Constant.from('f32', shape, new Float32Array(shape.reduce((a, b) => a * b)).fill(0.01)))
      return name
    }
    const add = (op, from, to, attributes = {}) => nodes.push(makeNode(op, from, [to].flat(), { attributes })) && to
    initializers.set('position', Constant.from('i64', [1, tokens], BigInt64Array.from({ length: tokens }, (_, i) => BigInt(past + i))))
    for (const name of ['cos', 'sin']) weight(name, past + tokens, depth / 2)
    let x = 'x'
    for (let l = 0; l < layers; l++) {
      const at = name => name + l
      const linear = (from, name, rows, cols) => add('MatMul', [from, weight(at('w' + name), rows, cols)], at(name))
      const norm = (from, name) => add('RMSNormalization', [from, weight(at('s' + name), hidden)], at(name), { axis: int(-1), epsilon: float(1e-5) })
      const turned = (from, name, count) => add('RotaryEmbedding', [from, 'cos', 'sin', 'position'], at(name), { num_heads: int(count) })
      const h = norm(x, 'h')
      const q = turned(linear(h, 'q', hidden, heads * depth), 'qr', heads)
      const k = turned(linear(h, 'k', hidden, own * depth), 'kr', own)
      const v = linear(h, 'v', hidden, own * depth)
      const states = past > 0 ? ['', at('pastKeys'), at('pastValues')] : []
      for (const name of states.slice(1)) inputs.push({ name, type: tensorType('f32', [1, own, past, depth]) })
      const presents = past > 0 ? [at('keys'), at('values')] : []
      outputs.push(...presents.map(name => ({ name })))
      add('Attention', [q, k, v, ...states], [at('a'), ...presents], { q_num_heads: int(heads), kv_num_heads: int(own), is_causal: int(1) })
      const sum = add('Add', [x, linear(at('a'), 'o', heads * depth, hidden)], at('sum'))
      const h2 = norm(sum, 'h2')
      const [gate, up] = [linear(h2, 'gate', hidden, inner), linear(h2, 'up', hidden, inner)]
      const silu = add('Mul', [gate, add('Sigmoid', [gate], at('sigmoid'))], at('silu'))
      x = add('Add', [sum, linear(add('Mul', [silu, up], at('gated')), 'down', inner, hidden)], at('y'))
    }
    const graph = makeGraph({ inputs, outputs: [{ name: x }, ...outputs], nodes, initializers })
    const model = await Model.fromGraph(graph, { backend: 'cuda', precision: 'bf16' })
    const feeds = Object.fromEntries(inputs.map(({ name, type }) => [name, Tensor.ones(type.shape)]))
    for (let run = 0; run < 2; ++run) await model.run(feeds)
    model.dispose()
    console.log('null')`
  const { env, lines } = machine(fakeDriver, discrete)
  await scriptResult(script, env)
  const kernels = lines('launch').map(line => line.split(' ')[1]!)
  // The first run, whose setup gathers the angles, and the second, which is captured.
  const setup = kernels.filter(kernel => kernel.startsWith('gather_')).length
  return kernels.slice(setup + (kernels.length - setup) / 2)
}

/** How often each kernel is in a layer. */
async function layer(tokens: number, past: number): Promise<Record<string, number>> {
  const counts: Record<string, number> = {}
  const [one, two] = [await launched(1, tokens, past), await launched(2, tokens, past)]
  for (const [kernels, sign] of [
    [two, 1],
    [one, -1],
  ] as const)
    for (const kernel of kernels) counts[kernel] = (counts[kernel] ?? 0) + sign
  return counts
}

t.test('a prompt', async t => {
  const expected = { norm_bf16: 2, linear_mma_bf16: 7, rotary_f32: 2, attention_bf16_64: 1 }
  t.strictSame(await layer(300, 0), expected)
})

t.test('a step, which puts keys and values behind those of the caller', async t => {
  const expected = {
    ...{ norm_bf16: 2, linear_mma_8_bf16: 7, rotary_f32: 2, attention_bf16_64: 1 },
    copy_strided_64: 4,
  }
  t.strictSame(await layer(1, 128), expected)
})
