// control.ts: shapes of control flow.
import type { Paced } from '../../core/paced.js'
import { graphOf, intsOf } from '../attributes.js'
import type { Subgraph, SymbolicDimension, ValueType } from '../graph.js'
import { type Fact, type Rule, type ShapeContext, tensorOrUnknown } from './context.js'
import type { Shape } from './dimensions.js'
import type { OperatorTable, ValueRule } from './row.js'

/** What two branches agree on. */
export function commonType(a: ValueType | undefined, b: ValueType | undefined): ValueType | undefined {
  if (a?.kind === 'tensor' && b?.kind === 'tensor' && a.dtype === b.dtype) {
    const { shape } = b
    if (!a.shape || !shape || a.shape.length !== shape.length) return tensorOrUnknown(a.dtype, undefined)
    return tensorOrUnknown(
      a.dtype,
      a.shape.map((dim, i) => (dim === shape[i] ? dim : null)),
    )
  }
  if (
    (a?.kind === 'sequence' && b?.kind === 'sequence') ||
    (a?.kind === 'optional' && b?.kind === 'optional')
  ) {
    const element = commonType(a.element, b.element)
    return element && { kind: a.kind, element }
  }
  return undefined
}

function body(ctx: ShapeContext, name: string): Subgraph {
  const graph = graphOf(ctx.node, name)
  if (!graph) throw ctx.fail(`lacks its graph '${name}'`)
  return graph
}

const conditional: Rule = function* (ctx) {
  const taken = ctx.numbers(0)?.[0]
  const infer = function* (name: string, runs: boolean): Paced<(ValueType | undefined)[]> {
    const facts = yield* ctx.inferSubgraph(body(ctx, name), [], taken !== undefined && runs)
    return facts.map(fact => fact.type)
  }
  const yes = yield* infer('then_branch', taken !== 0)
  const no = yield* infer('else_branch', taken === 0)
  if (taken !== undefined) return taken ? yes : no
  return ctx.node.outputs.map((_, i) => commonType(yes[i], no[i]))
}

/** The type of a carried value after a step of a loop; its sizes may change from step to step. */
function carried(before: ValueType | undefined, after: ValueType | undefined): ValueType | undefined {
  return before && commonType(before, after ?? before)
}

/** Loops that lie deeper inside of each other are inferred once: twice each would be 2^depth times. */
const maxTwiceInferred = 4

const withoutShape = (type: ValueType | undefined): ValueType | undefined =>
  type?.kind === 'tensor' ? tensorOrUnknown(type.dtype, undefined) : type

const loop: Rule = function* (ctx) {
  const graph = body(ctx, 'body')
  const count = Math.max(0, ctx.node.inputs.length - 2)
  const initial = Array.from({ length: count }, (_, i) => ctx.type(i + 2))
  const head: Fact[] = [{ type: tensorOrUnknown('i64', []) }, { type: tensorOrUnknown('bool', []) }]
  const step = (types: readonly (ValueType | undefined)[]) =>
    ctx.inferSubgraph(graph, [...head, ...types.map(type => ({ type }))])
  // What the first step changes is unknown in all of them.
  const once = ctx.depth < maxTwiceInferred ? yield* step(initial) : undefined
  const stable = initial.map((type, i) => (once ? carried(type, once[i + 1]?.type) : withoutShape(type)))
  const outputs = yield* step(stable)
  const trips = ctx.sizes(0)?.[0] ?? null
  const alwaysOn = !ctx.has(1) && outputs[0]?.known?.elements[0] === 1
  const scanned = outputs.slice(1 + count).map(({ type }) => stacked(type, alwaysOn ? trips : null, 0))
  return [...stable.map((type, i) => carried(type, outputs[i + 1]?.type)), ...scanned]
}

function stacked(type: ValueType | undefined, size: SymbolicDimension, axis: number): ValueType | undefined {
  if (type?.kind !== 'tensor') return undefined
  const at = type.shape && axis < 0 ? axis + type.shape.length + 1 : axis
  const shape: Shape | undefined = type.shape && [...type.shape.slice(0, at), size, ...type.shape.slice(at)]
  return tensorOrUnknown(type.dtype, shape)
}

const scan: Rule = function* (ctx) {
  const graph = body(ctx, 'body')
  const scans = ctx.int('num_scan_inputs')
  const states = ctx.node.inputs.length - scans
  if (scans < 0 || states < 0)
    throw ctx.fail(`num_scan_inputs is ${scans} with ${ctx.node.inputs.length} inputs`)
  const axes = intsOf(ctx.node, 'scan_input_axes') ?? []
  const outputAxes = intsOf(ctx.node, 'scan_output_axes') ?? []
  let length: SymbolicDimension = null
  const slices = Array.from({ length: scans }, (_, i): Fact => {
    const shape = ctx.shape(states + i)
    if (!shape) return { type: tensorOrUnknown(ctx.dtype(states + i), undefined) }
    const axis = ctx.axis(axes[i] ?? 0, shape.length)
    length ??= shape[axis]!
    return {
      type: tensorOrUnknown(
        ctx.dtype(states + i),
        shape.filter((_, at) => at !== axis),
      ),
    }
  })
  const initial = Array.from({ length: states }, (_, i) => ctx.type(i))
  const outputs = yield* ctx.inferSubgraph(graph, [...initial.map(type => ({ type })), ...slices])
  return [
    ...initial.map((type, i) => carried(type, outputs[i]?.type)),
    ...outputs.slice(states).map(({ type }, i) => stacked(type, length, outputAxes[i] ?? 0)),
  ]
}

/** The outputs of the branch that is taken, which has been inferred before. */
const branchValues: ValueRule = ctx => {
  const taken = ctx.numbers(0)?.[0]
  if (taken === undefined) return []
  const branch = graphOf(ctx.node, taken ? 'then_branch' : 'else_branch')
  return branch?.outputs.map(({ name }) => ctx.factOf(name).known) ?? []
}

/** Rows of control flow. */
export const control: OperatorTable = {
  '': {
    If: { shape: conditional, conditions: [0], values: branchValues },
    Loop: { shape: loop, integers: [0], conditions: [1] },
    Scan: { shape: scan },
  },
}
