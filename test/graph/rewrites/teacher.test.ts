// A teacher beside a model: both compute what each computes alone, whatever their values are called.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { addTeacher } from '#lib/graph/rewrites/teacher.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'

const input = (name: string) => ({ name, type: tensorType('f32', [2]) })

/** y = x · w + b */
const model = (w: number, b: number, more: Partial<Graph> = {}): Graph =>
  makeGraph({
    inputs: [input('x')],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Mul', ['x', 'w'], ['h'], { name: 'scale' }),
      makeNode('Add', ['h', 'b'], ['y'], { name: 'shift' }),
    ],
    initializers: new Map([
      ['w', Constant.f32(w)],
      ['b', Constant.f32(b)],
    ]),
    ...more,
  })

async function run(graph: Graph, names: readonly string[], feeds: Record<string, Float32Array>) {
  using plan = await Plan.create({ ...graph, outputs: names.map(name => ({ name })) }, jsKernels)
  const results = await plan.run(feeds)
  return names.map(name => [...(results[name] as Float32Array)])
}

const x = Float32Array.of(1, -2)

t.test('the same names', async t => {
  const [student, teacher] = [model(2, 1), model(-3, 0.5)]
  const { graph, values } = addTeacher(student, teacher)
  t.strictSame(graph.outputs, student.outputs)
  t.strictSame(graph.inputs, student.inputs)
  t.strictSame([...values.keys()].sort(), ['b', 'h', 'w', 'y'])
  t.strictSame(await run(graph, ['y', values.get('y')!, values.get('h')!], { x }), [
    [3, -3],
    [-2.5, 6.5],
    [-3, 6],
  ])
  const names = graph.nodes.map(({ name }) => name)
  t.equal(new Set(names).size, names.length, 'nodes have names of their own')
  t.strictSame(student, model(2, 1), 'the student stays as it was')
})

t.test('a student whose values are called as those of a teacher', async t => {
  const student = model(2, 1, {
    nodes: [makeNode('Mul', ['x', 'teacher/w'], ['teacher/y']), makeNode('Neg', ['teacher/y'], ['y'])],
    initializers: new Map([['teacher/w', Constant.f32(10)]]),
  })
  const { graph, values } = addTeacher(student, model(-3, 0.5))
  t.strictSame(await run(graph, ['y', values.get('y')!], { x }), [
    [-10, 20],
    [-2.5, 6.5],
  ])
})

t.test('an input that only the teacher has; one that is a constant there', async t => {
  const teacher = model(0, 0, {
    inputs: [input('x'), input('z'), { name: 'w' }],
    nodes: [makeNode('Mul', ['z', 'w'], ['h']), makeNode('Sub', ['x', 'h'], ['y'])],
    initializers: new Map([['w', Constant.f32(5)]]),
  })
  const { graph, values } = addTeacher(model(2, 1), teacher)
  t.strictSame(
    graph.inputs.map(({ name }) => name),
    ['x', 'z'],
  )
  t.strictSame(await run(graph, ['y', values.get('y')!], { x, z: Float32Array.of(3, 4) }), [
    [3, -3],
    [-14, -22],
  ])
})

t.test('branches of both keep values of their own', async t => {
  const branch = (value: number) => ({
    type: 'graph' as const,
    value: makeGraph({
      nodes: [makeNode('Mul', ['x', 'factor'], ['inner'])],
      outputs: [{ name: 'inner' }],
      initializers: new Map([['factor', Constant.f32(value)]]),
    }),
  })
  const branching = (yes: number, no: number): Graph => {
    const attributes = { then_branch: branch(yes), else_branch: branch(no) }
    const nodes: Node[] = [makeNode('If', ['c'], ['y'], { attributes })]
    return model(0, 0, { nodes, initializers: new Map([['c', Constant.from('bool', [], Uint8Array.of(1))]]) })
  }
  const { graph } = addTeacher(branching(2, 3), branching(4, 5))
  const inner = graph.nodes.flatMap(({ attributes }) =>
    Object.values(attributes).flatMap(attribute =>
      attribute.type === 'graph'
        ? [...attribute.value.initializers.keys(), ...attribute.value.nodes.flatMap(({ outputs }) => outputs)]
        : [],
    ),
  )
  t.equal(new Set(inner).size, 8)
})
