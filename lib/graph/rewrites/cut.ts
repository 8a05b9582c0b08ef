// cut.ts: a graph as stages that are run one after another, each with its own part of the nodes, weights and states.
import { argumentError } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { namedStates, readsOf, subgraphsOf } from '../edit.js'
import type { Graph, Node, ValueInfo } from '../graph.js'
import type { Fact } from '../shape-inference.js'
import { type Living, livingOf } from './cut/living.js'
import { placeOf } from './cut/points.js'
import { stageOfStates } from './cut/states.js'
import { factsOf, inputType } from './cut/values.js'

export { type CutPoint, type CutPointOptions, cutPoints } from './cut/points.js'

/** Options of {@link cutGraph}. */
export interface CutOptions {
  /** Outputs by the inputs that they replace in the next run. Default: `past…` and `present…`, `x` and `next_x`. */
  readonly states?: ReadonlyMap<string, string> | undefined
}

/**
 * Cuts a canonical graph. Each stage is a complete graph: its inputs are those of the whole that it reads, and then the values of
 * earlier stages that it reads; its outputs are those of the whole that it makes, and then the values that later stages read, all
 * under their names in the whole. A value that skips a stage is no part of it: {@link stageEnds} says who hands it on. Nothing is
 * computed twice but what follows from constants.
 * @param ends - places, such as `end` of {@link cutPoints}: numbers of nodes, ascending
 * @throws SparkError ERR_ARGUMENT for places that the graph does not have; ERR_UNSUPPORTED, naming the place and the value, for a
 * cut through a state, a sequence, a map or a value of unknown type, and for a stage that computes nothing
 */
export function cutGraph(graph: Graph, ends: readonly number[], options: CutOptions = {}): Graph[] {
  expectPlaces(graph, ends)
  return new Cutter(graph, ends, options.states ?? namedStates(graph.inputs, graph.outputs)).stages()
}

function expectPlaces({ nodes }: Graph, ends: readonly number[]): void {
  const isPlace = (end: number, i: number): boolean =>
    Number.isSafeInteger(end) && end > (ends[i - 1] ?? 0) && end < nodes.length
  if (!Array.isArray(ends) || !ends.every(isPlace))
    throw argumentError('ends', `ascending numbers of nodes from 1 to ${nodes.length - 1}`, ends)
}

class Cutter {
  readonly #graph: Graph
  readonly #ends: readonly number[]
  readonly #living: Living
  readonly #facts: ReadonlyMap<string, Fact>
  /** Stage of each output of the graph. */
  readonly #outputs = new Map<string, number>()
  readonly #states: ReadonlyMap<string, number>

  constructor(graph: Graph, ends: readonly number[], states: ReadonlyMap<string, string>) {
    this.#graph = graph
    this.#ends = ends
    this.#facts = factsOf(graph)
    this.#living = livingOf(graph, this.#facts)
    this.#states = stageOfStates(graph, ends, this.#living, states)
    const places = new Map(graph.nodes.flatMap(({ outputs }, i) => outputs.map(name => [name, i] as const)))
    for (const { name } of graph.outputs)
      this.#outputs.set(name, this.#stageOf(places.get(name) ?? this.#living.readers.get(name)?.[0] ?? 0))
  }

  stages(): Graph[] {
    const nodes = this.#assigned()
    const reads = nodes.map(own => new Set(own.flatMap(readsOf)))
    return nodes.map((own, stage) => this.#stage(stage, own, reads))
  }

  #stageOf(node: number): number {
    const stage = this.#ends.findIndex(end => node < end)
    return stage < 0 ? this.#ends.length : stage
  }

  /** The nodes of each stage, with those that make the constants that it reads. */
  #assigned(): Node[][] {
    const { nodes, updates } = this.#graph
    const { needed, made, fixed } = this.#living
    const stages = Array.from({ length: this.#ends.length + 1 }, () => ({
      nodes: [] as Node[],
      wanted: new Set<string>(),
    }))
    for (const [name, stage] of this.#outputs) stages[stage]!.wanted.add(name)
    for (const [name, next] of updates ?? []) stages[this.#states.get(name)!]!.wanted.add(next)
    for (let i = nodes.length - 1; i >= 0; i--) {
      const node = nodes[i]!
      if (!needed.has(node)) continue
      const isFixed = node.outputs.every(name => name === '' || fixed.has(name))
      for (const [stage, { nodes: own, wanted }] of stages.entries()) {
        const isHere = isFixed ? node.outputs.some(name => wanted.has(name)) : stage === this.#stageOf(i)
        if (!isHere) continue
        for (const read of readsOf(node)) wanted.add(read)
        own.push(node)
      }
    }
    for (const [stage, own] of stages.entries())
      if (stages.length > 1 && !own.nodes.some(({ outputs }) => outputs.some(name => made.has(name))))
        this.#refuseEmpty(stage)
    return stages.map(({ nodes: own }) => own.reverse())
  }

  #refuseEmpty(stage: number): never {
    const end = this.#ends[stage] ?? this.#ends[stage - 1]!
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${placeOf(this.#graph, end)}, leaves stage ${stage} nothing to compute but constants: leave it out`,
    )
  }

  #stage(stage: number, nodes: readonly Node[], reads: readonly ReadonlySet<string>[]): Graph {
    const graph = this.#graph
    const own = new Set(nodes.flatMap(({ outputs }) => outputs))
    const results = graph.outputs.filter(({ name }) => this.#outputs.get(name) === stage)
    const read = new Set([...reads[stage]!, ...results.map(({ name }) => name)])
    const states = [...(graph.updates ?? [])].filter(([name]) => this.#states.get(name) === stage)
    for (const [name, next] of states) read.add(name).add(next)
    const { constants, made } = this.#living
    const fed = new Set(graph.inputs.map(({ name }) => name))
    const carried: ValueInfo[] = []
    for (const name of read) {
      if (!own.has(name) && !fed.has(name) && !constants.has(name)) carried.push(this.#carried(name, stage))
    }
    const later = new Set(reads.slice(stage + 1).flatMap(names => [...names]))
    const taken = new Set(results.map(({ name }) => name))
    const given = [...own].filter(name => later.has(name) && !taken.has(name) && made.has(name))
    return {
      ...graph,
      name: `${graph.name} stage ${stage}`,
      inputs: [...graph.inputs.filter(({ name }) => read.has(name)), ...this.#inOrder(carried)],
      outputs: [...results, ...given.map(name => this.#info(name))],
      nodes,
      initializers: new Map([...constants].filter(([name]) => read.has(name) && !own.has(name))),
      values: new Map([...graph.values].filter(([name]) => own.has(name))),
      ...(graph.overridable && { overridable: graph.overridable.filter(({ name }) => read.has(name)) }),
      ...(graph.updates && { updates: new Map(states) }),
    }
  }

  /** Values in the order in which they are made. */
  #inOrder(infos: readonly ValueInfo[]): ValueInfo[] {
    const place = ({ name }: ValueInfo): number => this.#living.made.get(name)!
    return [...infos].sort((a, b) => place(a) - place(b))
  }

  #info(name: string): ValueInfo {
    const type = this.#facts.get(name)?.type
    if (type?.kind !== 'tensor') return { name }
    // A loop that never ran does not know the sizes of what it would have made.
    const isOfLoop = subgraphsOf(this.#graph.nodes[this.#living.made.get(name)!]!).length > 0
    return { name, type: isOfLoop ? { kind: 'tensor', dtype: type.dtype } : inputType(type) }
  }

  #carried(name: string, stage: number): ValueInfo {
    const info = this.#info(name)
    if (info.type) return info
    const kind = this.#facts.get(name)?.type?.kind
    const what = kind ? `a ${kind}` : 'of unknown type'
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${placeOf(this.#graph, this.#ends[stage - 1]!)}: '${name}', which passes it, is ${what}, and only tensors can go to another stage: cut somewhere else`,
    )
  }
}

/** What a stage exchanges with the others, by names in the whole. */
export interface StageEnds {
  /** Inputs of the whole that it must be fed. */
  readonly feeds: readonly string[]
  /** Values of earlier stages that it reads. */
  readonly takes: readonly string[]
  /** Values that it makes for later stages; some may be outputs of the whole as well. */
  readonly gives: readonly string[]
  /** Values of earlier stages that later ones read: whoever runs it hands them on, whether it reads them or not. */
  readonly passes: readonly string[]
  /** Outputs of the whole that it makes. */
  readonly results: readonly string[]
  /** Outputs by the inputs that they replace in the next run of the stage. */
  readonly states: ReadonlyMap<string, string>
}

/**
 * What stages of {@link cutGraph} exchange.
 * @param graph - the whole
 * @param states - as {@link CutOptions} has them
 */
export function stageEnds(
  graph: Graph,
  stages: readonly Graph[],
  states: ReadonlyMap<string, string> = namedStates(graph.inputs, graph.outputs),
): StageEnds[] {
  const names = (infos: readonly ValueInfo[]): string[] => infos.map(({ name }) => name)
  const [inputs, outputs] = [new Set(names(graph.inputs)), new Set(names(graph.outputs))]
  const takes = stages.map(stage => names(stage.inputs).filter(name => !inputs.has(name)))
  const earlier = new Set<string>()
  return stages.map((stage, i) => {
    const later = new Set(takes.slice(i + 1).flat())
    const made = names(stage.outputs)
    const passes = [...earlier].filter(name => later.has(name))
    for (const name of made) earlier.add(name)
    const feeds = names(stage.inputs).filter(name => inputs.has(name))
    return {
      ...{ feeds, passes, takes: takes[i]! },
      gives: made.filter(name => later.has(name)),
      results: made.filter(name => outputs.has(name)),
      states: new Map([...states].filter(([input, next]) => feeds.includes(input) && made.includes(next))),
    }
  })
}
