// loss-scale.ts: gradients are computed of a multiple of the loss, so that small ones survive rounding to 16 bits.
import { GraphBuilder } from '../builder.js'
import { type Graph, tensorType } from '../graph.js'

/** Input that {@link addLossScale} adds: the factor, one f32; a power of two, so that scaling rounds nothing. */
export const lossScale = 'loss/scale'

/** The largest f32. */
const maxFloat = (2 - 2 ** -23) * 2 ** 127

/** Appends the loss times {@link lossScale}, which is what to differentiate then; gives its name. */
export function addLossScale(graph: Graph, loss: string): { readonly graph: Graph; readonly loss: string } {
  const builder = new GraphBuilder(graph, 'scaled')
  const scaled = builder.add('Mul', [loss, lossScale])
  builder.input({ name: lossScale, type: tensorType('f32', []) })
  return { graph: builder.build(), loss: scaled }
}

/** Divides gradients by {@link lossScale}. */
export function unscaleGradients(
  graph: Graph,
  gradients: ReadonlyMap<string, string>,
): { readonly graph: Graph; readonly gradients: ReadonlyMap<string, string> } {
  const builder = new GraphBuilder(graph, 'unscaled')
  const unscaled = [...gradients].map(([parameter, name]) => {
    return [parameter, builder.add('Div', [name, lossScale])] as const
  })
  return { graph: builder.build(), gradients: new Map(unscaled) }
}

/** Lets every state stay as it is after a run in which the value `norm` is not finite. */
export function skipUnlessFinite(graph: Graph, norm: string): Graph {
  const builder = new GraphBuilder(graph, 'skip')
  const finite = builder.add('LessOrEqual', [norm, builder.constant(maxFloat)])
  const updates = [...(graph.updates ?? [])].map(([name, next]) => {
    return [name, builder.add('Where', [finite, next, name])] as const
  })
  return { ...builder.build(), updates: new Map(updates) }
}
