// teacher.ts: puts a second model beside the first, on the same inputs.
import { freshNames, renameReads } from '../edit.js'
import type { Graph } from '../graph.js'
import { uniqueNames } from './unique-names.js'

/** A model with its teacher. */
export interface WithTeacher {
  readonly graph: Graph
  /** Name in the graph of each value of the teacher, by its name in the teacher. */
  readonly values: ReadonlyMap<string, string>
}

/** What names of the teacher's values start with. */
const prefix = 'teacher/'

/**
 * Puts the nodes of `teacher` in front of those of `graph`. Both read the same inputs; an input that only the teacher has
 * becomes one of the graph. Outputs stay those of `graph`. Domains keep the version that `graph` says.
 */
export function addTeacher(graph: Graph, teacher: Graph): WithTeacher {
  const inputs = new Set(
    teacher.inputs.map(({ name }) => name).filter(name => !teacher.initializers.has(name)),
  )
  const fresh = freshNames(graph)
  const own = [...teacher.initializers.keys(), ...teacher.nodes.flatMap(({ outputs }) => outputs)]
  const names = new Map(own.filter(name => name !== '').map(name => [name, fresh(`${prefix}${name}`)]))
  const nodes = renameReads(teacher, names).nodes.map(node => ({
    ...node,
    name: node.name && `${prefix}${node.name}`,
    outputs: node.outputs.map(name => names.get(name) ?? name),
  }))
  const known = new Set(graph.inputs.map(({ name }) => name))
  const initializers = [...teacher.initializers].map(([name, value]) => [names.get(name)!, value] as const)
  return {
    graph: uniqueNames({
      ...graph,
      inputs: [...graph.inputs, ...teacher.inputs.filter(({ name }) => inputs.has(name) && !known.has(name))],
      nodes: [...nodes, ...graph.nodes],
      initializers: new Map([...graph.initializers, ...initializers]),
      opsets: new Map([...teacher.opsets, ...graph.opsets]),
      functions: [...graph.functions, ...teacher.functions],
    }),
    values: names,
  }
}
