// Models whose outputs become inputs of the next run: the same numbers as with values that are fed back, without copies.
import { type Graph, GraphBuilder, Model, type ModelValue, type StatePairs, Tensor } from 'dgx-spark'
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { languageModelFile, noModels as skip } from '../fixtures/models/onnx-models.js'

const backends = loadAddon().addon ? (['cpu', 'js'] as const) : (['js'] as const)

/** Decoders with standard Attention, GroupQueryAttention, a past of keys and values in one tensor, and convolutions. */
const decoders: readonly (readonly string[])[] = [
  ['stories260K', 'onnx', 'model_opset23.onnx'],
  ['stories260K', 'onnx', 'model.onnx'],
  ['genai', 'tiny-random-gpt2-fp32', 'past.onnx'],
  ['genai', 'tiny-random-lfm2-fp32', 'decoder.onnx'],
]

type Values = Record<string, Tensor>

/** What the inputs of a decoder are for tokens that come behind others; those that are no past. */
function tokens(inputs: readonly ModelValue[], ids: readonly number[], past: number, batch = 1): Values {
  const of = (name: string, shape: number[], numbers: readonly number[]): Tensor => {
    const dtype = inputs.find(input => input.name === name)!.dtype as 'i64' | 'i32'
    const all = Array.from({ length: batch }, () => numbers).flat()
    const data = dtype === 'i64' ? BigInt64Array.from(all, BigInt) : Int32Array.from(all)
    return Tensor.from(data as BigInt64Array, { dtype: dtype as 'i64', shape }) as unknown as Tensor
  }
  const total = past + ids.length
  return {
    input_ids: of('input_ids', [batch, ids.length], ids),
    position_ids: of(
      'position_ids',
      [batch, ids.length],
      ids.map((_, i) => past + i),
    ),
    attention_mask: of('attention_mask', [batch, total], new Array(total).fill(1)),
  }
}

const isPast = ({ name }: ModelValue): boolean => name.startsWith('past')

/** A past of no tokens. */
function nothing(inputs: readonly ModelValue[], batch = 1): Values {
  const shapeOf = ({ shape }: ModelValue): number[] =>
    shape!.map(size => (typeof size === 'number' ? size : size === 'batch_size' ? batch : 0))
  return Object.fromEntries(
    inputs.filter(isPast).map(input => [input.name, Tensor.zeros(shapeOf(input), 'f32') as Tensor]),
  )
}

const presentOf = (name: string): string => name.replace(/past(_key_values)?/, 'present')

/** A prompt, and tokens one by one, more than fit in the first memory of the states. */
const chunks = [[1, 5, 9], ...Array.from({ length: 37 }, (_, i) => [(7 * i + 11) % 400])]

for (const backend of backends) {
  for (const file of decoders) {
    t.test(`${file.join('/')} keeps its past on ${backend}`, { skip }, async t => {
      using model = await Model.load(languageModelFile(...file), { backend })
      using stateful = model.bindState()
      const few = backend === 'js' ? chunks.slice(0, 6) : chunks
      const seen: boolean[] = []
      let past = nothing(model.inputs)
      let length = 0
      for (const ids of few) {
        const feeds = tokens(model.inputs, ids, length)
        const fed = (await model.run({ ...feeds, ...past })) as Values
        const { logits } = (await stateful.run(feeds)) as Values
        length += ids.length
        past = Object.fromEntries(Object.keys(past).map(name => [name, fed[presentOf(name)]!]))
        seen.push(same(logits!, fed.logits!))
      }
      t.same(seen, new Array(few.length).fill(true), 'the same logits, bit for bit')
      const states = (await stateful.states()) as Values
      for (const [name, value] of Object.entries(past))
        t.ok(same(states[name]!, value), `${name} is the same`)
      t.equal(stateful.length, length)
      t.same(stateful.outputs, ['logits'])
      t.same([...stateful.inputs].sort(), ['attention_mask', 'input_ids', 'position_ids'])
    })
  }
}

function same(a: Tensor, b: Tensor): boolean {
  return String(a.shape) === String(b.shape) && a.data.every((element, i) => Object.is(element, b.data[i]))
}

t.test('sequences of one model are independent; they begin anew, and go back', { skip }, async t => {
  using model = await Model.load(languageModelFile(...decoders[0]!))
  const step = async (
    decoder: ReturnType<typeof model.bindState>,
    ids: number[],
    batch = 1,
  ): Promise<Tensor> =>
    ((await decoder.run(tokens(model.inputs, ids, decoder.length, batch))) as Values).logits!
  using a = model.bindState()
  using b = model.bindState()
  await step(a, [1, 2, 3])
  await step(b, [9, 8], 2)
  const third = await step(a, [4])
  t.equal(a.length, 4)
  t.same((await step(b, [7], 2)).shape, [2, 1, 512])
  await a.truncate(3)
  t.equal(a.length, 3)
  t.ok(same(await step(a, [4]), third), 'after going back')
  await a.reset()
  t.equal(a.length, 0)
  await step(a, [1, 2, 3])
  t.ok(same(await step(a, [4]), third), 'after a reset')
  const begun = await a.states()
  using c = model.bindState(undefined, { initial: begun })
  await a.truncate(3)
  t.equal(c.length, 0, 'states are there from the first run on')
  const next = tokens(model.inputs, [5], 4)
  await step(a, [4])
  const [{ logits: one }, { logits: other }] = (await Promise.all([a.run(next), c.run(next)])) as Values[]
  t.ok(same(one!, other!), 'initial states')
})

t.test('states that do not grow begin anew after a reset', async t => {
  const g = new GraphBuilder()
  const sum = g.add('Add', [g.input('sum', 'f32', [3]), g.input('x', 'f32', [3])])
  g.output(sum, 'next_sum')
  g.output(g.add('Neg', [sum]), 'y')
  for (const backend of backends) {
    using model = await Model.fromGraph(g.build(), { backend })
    using adding = model.bindState({ sum: 'next_sum' })
    const step = async (): Promise<number[]> => {
      const { y } = await adding.run<{ y: 'f32' }>({ x: [1, 2, 3] })
      return [...y.data]
    }
    t.same(
      [await step(), await step()],
      [
        [-1, -2, -3],
        [-2, -4, -6],
      ],
      backend,
    )
    await adding.reset()
    t.same(
      [await step(), await step()],
      [
        [-1, -2, -3],
        [-2, -4, -6],
      ],
      `${backend} after a reset`,
    )
  }
})

t.test('a run that is aborted or fails leaves a past as it is', { skip }, async t => {
  using model = await Model.load(languageModelFile(...decoders[0]!))
  using decoder = model.bindState()
  await decoder.run(tokens(model.inputs, [1, 2], 0))
  const controller = new AbortController()
  const aborted = decoder.run(tokens(model.inputs, [3], 2), { signal: controller.signal })
  controller.abort(new Error('enough'))
  await t.rejects(aborted, { message: 'enough' })
  t.equal((await decoder.states())['past_key_values.0.key']!.shape[2], 2)
  const wrong = {
    ...tokens(model.inputs, [3], 2),
    position_ids: tokens(model.inputs, [3, 4], 2).position_ids!,
  }
  await t.rejects(decoder.run(wrong), { code: 'ERR_SHAPE' })
  const { logits } = (await decoder.run(tokens(model.inputs, [3], 2))) as Values
  using other = model.bindState()
  await other.run(tokens(model.inputs, [1, 2], 0))
  t.ok(same(logits!, ((await other.run(tokens(model.inputs, [3], 2))) as Values).logits!))
})

/** y = what was seen so far, and a sum that is carried on. */
function sums(): Graph {
  const build = new GraphBuilder()
  const x = build.input('x', 'f32', [2, 'new'])
  const seen = build.input('seen', 'f32', [2, 'old'])
  const total = build.input('total', 'f32', [2, 1])
  const all = build.add('Concat', [seen, x], { axis: 1 })
  const sum = build.add('Add', [
    total,
    build.add('ReduceSum', [x, build.initializer('axes', Tensor.from([1], { dtype: 'i64' }))]),
  ])
  // The old sum is read after the new one was made.
  build.output(build.add('Sub', [sum, total]), 'change')
  build.output(build.add('ReduceSum', [all, 'axes']), 'y')
  return build.output(all, 'all').output(sum, 'sum').build()
}

const pairs: StatePairs = { seen: 'all', total: 'sum' }

for (const backend of backends) {
  t.test(`concatenations and sums on ${backend}`, async t => {
    using model = await Model.fromGraph(sums(), { backend })
    using stateful = model.bindState(pairs)
    const rows = [0, 0]
    for (let i = 0; i < 40; i++) {
      const x = new Float32Array(2 * (1 + (i % 3))).map((_, k) => i + k)
      const width = x.length / 2
      const added = [0, 1].map(row =>
        x.subarray(row * width, (row + 1) * width).reduce((sum, value) => sum + value, 0),
      )
      for (const row of [0, 1]) rows[row]! += added[row]!
      const { change, y } = (await stateful.run({ x: Tensor.from(x, { shape: [2, width] }) })) as Values
      t.same([...y!.data], rows)
      t.same([...change!.data], added)
    }
    const { seen, total } = (await stateful.states()) as Values
    t.same(seen!.shape, [2, 79])
    t.same([...total!.data], rows)
  })
}

t.test('a window over the past is copied into place', async t => {
  const build = new GraphBuilder()
  const all = build.add('Concat', [build.input('past', 'f32', [1, 4]), build.input('x', 'f32', [1, 1])], {
    axis: 1,
  })
  const [starts, ends, axes] = [[-4], [9], [1]].map((list, i) =>
    build.initializer(`i${i}`, Tensor.from(list, { dtype: 'i64' })),
  )
  build.output(build.add('Slice', [all, starts!, ends!, axes!]), 'present')
  using model = await Model.fromGraph(build.output(build.add('ReduceSum', [all]), 'y').build())
  using stateful = model.bindState()
  const sums: number[] = []
  for (let i = 1; i <= 6; i++) {
    const { y } = (await stateful.run({ x: Float32Array.of(i) }, { outputs: ['y'] })) as Values
    sums.push(y!.data[0] as number)
  }
  t.same(sums, [1, 3, 6, 10, 15, 20])
  t.same([...(await stateful.states()).past!.data], [3, 4, 5, 6])
})

t.test('states in ONNX Runtime', async t => {
  using model = await Model.fromGraph(sums(), { backend: 'onnxruntime' })
  using stateful = model.bindState(pairs)
  await stateful.run({ x: Tensor.ones([2, 3], 'f32') })
  const { y } = (await stateful.run({ x: Tensor.ones([2, 2], 'f32') })) as Values
  t.same([...y!.data], [5, 5])
})

t.test('what is refused', async t => {
  using model = await Model.fromGraph(sums())
  t.throws(() => model.bindState(), { code: 'ERR_ARGUMENT', message: /past and present.*'seen'.*'all'/s })
  t.throws(() => model.bindState({ sen: 'all' }), { message: /no input 'sen'.*did you mean 'seen'/ })
  t.throws(() => model.bindState({ seen: 'alll' }), { message: /no output 'alll'.*did you mean 'all'/ })
  t.throws(() => model.bindState({ seen: { output: 'all', axis: 7 } }), {
    message: /axis must be an integer in \[0, 1\], got 7/,
  })
  t.throws(() => model.bindState({ seen: 'all', total: 'all' }), { message: /another output/ })
  t.throws(() => model.bindState({}), { message: /pairs must be an object/ })
  t.throws(() => model.bindState(pairs, { initial: { x: [1] } }), { message: /initial/ })
  t.throws(() => model.bindState(pairs, { initials: {} } as never), { message: /did you mean 'initial'/ })
  using stateful = model.bindState(pairs)
  await t.rejects(stateful.run({ seen: [] }), { message: /no input 'seen'/ })
  await t.rejects(stateful.run({ x: [[1], [2]] }, { outputs: ['all'] }), { message: /outputs/ })
  await t.rejects(stateful.truncate(-1), { code: 'ERR_ARGUMENT' })
  stateful.dispose()
  await t.rejects(stateful.run({ x: [[1], [2]] }), { code: 'ERR_DISPOSED' })
  const open = new GraphBuilder()
  const grown = open.add(
    'Concat',
    [open.input('past', 'f32', [null, null]), open.input('x', 'f32', [1, 1])],
    { axis: 1 },
  )
  using vague = await Model.fromGraph(open.output(grown, 'present').build())
  t.throws(() => vague.bindState(), { message: /give it, as in \{ output: 'present', axis: 2 \}/ })
  using named = vague.bindState({ past: { output: 'present', axis: 1 } })
  await t.rejects(named.run({ x: [[1]] }), { code: 'ERR_SHAPE', message: /initial/ })
})
