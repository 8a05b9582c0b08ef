// content-names.ts: names of the content of files in memory: the same bytes have the same name in every process.
import type { Graph } from './graph.js'

const names = new WeakMap<object, string>()

/** The name of the memory or file that constants come from; undefined where nobody has told what is in it. */
export const contentName = (origin: object): string | undefined => names.get(origin)

/**
 * Names what the initializers of a graph come from, but for files beside that of the graph.
 * @param hash - of the file of the graph
 */
export function nameContents({ initializers }: Graph, hash: string): void {
  for (const [name, constant] of initializers) {
    const { object } = constant.origin
    if (!constant.isBeside && !names.has(object)) names.set(object, `${hash} ${name}`)
  }
}
