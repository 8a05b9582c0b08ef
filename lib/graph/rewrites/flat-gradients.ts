// flat-gradients.ts: small gradients as one vector, so that what all of them have to go through takes as many kernels as one of
// them. Plans compute gradients where they lie in the vector.
import { int } from '../attributes.js'
import type { GraphBuilder } from '../builder.js'
import type { Graph } from '../graph.js'

/** Elements of a gradient that is worth kernels of its own. */
const manyElements = 1 << 20

/** Gradients of which the small ones are one. */
export interface FlatGradients {
  /** Name of the vector, where there is one, then those of the other gradients. */
  readonly names: readonly string[]
  /** Adds the gradient of each parameter, of values that were computed from those of `names`. */
  unflatten(values: readonly string[]): Map<string, string>
}

/** Adds the vector of all small gradients. */
export function flattenGradients(
  builder: GraphBuilder,
  { initializers }: Graph,
  gradients: ReadonlyMap<string, string>,
): FlatGradients {
  const small = [...gradients.keys()].filter(name => initializers.get(name)!.count < manyElements)
  if (small.length < 2) {
    const names = [...gradients.values()]
    return { names, unflatten: values => new Map([...gradients.keys()].map((name, i) => [name, values[i]!])) }
  }
  const large = [...gradients.keys()].filter(name => !small.includes(name))
  const line = builder.constant([-1])
  const pieces = small.map(name => builder.add('Reshape', [gradients.get(name)!, line]))
  const vector = builder.add('Concat', pieces, { axis: int(0) })
  return {
    names: [vector, ...large.map(name => gradients.get(name)!)],
    unflatten([vector, ...others]) {
      const sizes = builder.constant(small.map(name => initializers.get(name)!.count))
      const all = small.map(() => true)
      const pieces = builder.addMany('Split', [vector!, sizes], all, { axis: int(0) })
      const values = new Map(large.map((name, i) => [name, others[i]!]))
      for (const [i, name] of small.entries()) {
        const shape = builder.constant(initializers.get(name)!.shape)
        values.set(name, builder.add('Reshape', [pieces[i]!, shape]))
      }
      return new Map([...gradients.keys()].map(name => [name, values.get(name)!]))
    },
  }
}
