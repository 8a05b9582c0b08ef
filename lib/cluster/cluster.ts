// cluster.ts: models on the machines of a cluster.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectOneOf,
  expectSignal,
  expectText,
} from '../core/checks.js'
import type { ElementType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { Tensor } from '../memory/tensor.js'
import type { Feeds } from '../model/feeds.js'
import {
  type ClusterJobsOptions,
  type ClusterMapOptions,
  mapBatches,
  mapClusterJobs,
} from './cluster-jobs.js'
import type { JobDescription } from './jobs/jobs.js'
import type { MapResult } from './jobs/map.js'
import type { ClusterNode } from './node/cluster-node.js'
import { fleetOf } from './node/live-fleet.js'
import type { ModelCosts } from './placement/costs.js'
import { readFleet } from './placement/fleet.js'
import { type GraphShapes, graphCosts } from './placement/graph-costs.js'
import { type PlaceOptions, place } from './placement/place.js'
import {
  areMeasured,
  canBeGroup,
  checkGroup,
  checkHeads,
  type GroupLinks,
  groupLinksOf,
  nodesThatFit,
  type SharedModel,
  withSums,
  worldWithin,
} from './stages/group-plans.js'
import { besideKept, heldBy, type LiveNodes, plansOf, throughHere, wholeOn } from './stages/live-plans.js'
import { Pipeline, type PipelineEvent } from './stages/pipeline.js'
import type { StageOptions } from './stages/questions.js'
import type { StagePlan } from './stages/stage-place.js'
import { type StagedGraph, StagedModel } from './stages/staged-model.js'
import { type SumsChoice, sumChoices } from './stages/sum-choices.js'
import { type ClusterText, loadText, type StagedTextOptions, stagedTextOptions } from './text/load-text.js'

/** How the layers of a model are spread over machines. */
export type Strategy = 'auto' | 'pipeline' | 'tensor' | 'hybrid'

const strategies: readonly Strategy[] = ['auto', 'pipeline', 'tensor', 'hybrid']

/** Options of {@link Cluster.load}. */
export interface ClusterLoadOptions {
  /**
   * `auto`: the placement with the shortest run, which is one machine where the model fits on the fastest, or a group of machines
   * that share layers. `pipeline`: the one with the most runs a second when several are asked for at a time, each stage on one
   * machine. `hybrid`: the same, with stages on groups where links allow it. `tensor`: all layers on all machines, each of which
   * has a part of the weights. Default: `auto`.
   */
  readonly strategy?: Strategy
  /** Layers on a node, such as `0-10=spark-1`, as `dgx-spark place` names them; on a group: `0-10=spark-1+spark-2`. */
  readonly pins?: readonly string[]
  /** Sizes of inputs for the costs. Default: those of the model; open ones are 1. */
  readonly shapes?: GraphShapes
  /** Nodes that must be there and measured, this one included. Default: those that are there now. */
  readonly nodes?: number
  /** How long they are waited for, ms. Default: 30000. */
  readonly waitMs?: number
  /** What nodes compute with. Default: the backend that the placement chose. */
  readonly backend?: StageOptions['backend']
  /** As of `Model.load`, on all nodes. Default: `fp32`, so that all nodes compute alike. */
  readonly precision?: string
  /** Threads of each stage. Default: one for each core of its node. */
  readonly threads?: number
  /**
   * What the other nodes may do for this one: a token of `dgx-spark token create` with `model:load`, `gpu:allocate` and `gpu:compute`,
   * bound to the certificate of this node. The model ends with it. Default: what nodes may do for each other.
   */
  readonly token?: string
  /** How long a node that has gone is waited for before its stages go elsewhere, ms. Default: 10000. */
  readonly graceMs?: number
  /** The longest round trip between machines that share layers, ms. Default: 1. */
  readonly maxRttMs?: number
  /**
   * What machines that share layers sum over. `stream`: their links, which are encrypted, on CPUs. `nccl`: NCCL, on GPUs; it sends plaintext
   * over the interface of the links, which must be fabric. `auto`: `nccl` where all of them can, else `stream`. Default: `auto`.
   */
  readonly sums?: SumsChoice
  /** Ends loading. */
  readonly signal?: AbortSignal
  /** Hears of nodes that load, go and come back. */
  readonly onEvent?: (event: PipelineEvent) => void
}

/** Options of {@link Cluster.loadText}. */
export interface ClusterTextOptions
  extends Omit<ClusterLoadOptions, 'shapes'>,
    Omit<StagedTextOptions, 'signal'> {}

const optionNames = [
  ...['strategy', 'pins', 'shapes', 'nodes', 'waitMs', 'backend', 'precision', 'threads', 'token'],
  ...['graceMs', 'signal', 'onEvent', 'maxRttMs', 'sums'],
]
const pollMs = 100

/**
 * The machines of a cluster, for models.
 * @example
 * const node = await ClusterNode.start()
 * const cluster = new Cluster(node)
 * const model = await cluster.load('model.onnx', { strategy: 'pipeline', nodes: 2 })
 * const { scores } = await model.run({ image })
 * await model.dispose()
 */
export class Cluster {
  readonly #node: ClusterNode

  /** @param node - this machine */
  constructor(node: ClusterNode) {
    this.#node = node
  }

  /**
   * Puts an ONNX model on the nodes. Each fetches the parts of the files that its stage reads, once.
   * @param file - path of the model
   * @throws SparkError ERR_ARGUMENT; `InfeasibleError` naming the constraint that fails; ERR_IO when too few nodes are there; as
   * `Model.load`
   */
  async load(file: string, options: ClusterLoadOptions = {}): Promise<Pipeline> {
    expectText('file', file)
    checkOptions(options)
    const model = await StagedModel.open(file, this.#node.stages.store, options.signal)
    return this.#open(model, graphCosts(file, model.graph, options.shapes), options, {})
  }

  /**
   * Puts the layers of a language model on the nodes, each with the keys and values of its layers, or of its heads where nodes share
   * layers. Texts are those of one machine, bit for bit, where all nodes compute alike and none share layers; they go on when a node
   * leaves.
   * @param source - a GGUF file, the folder of Hugging Face, or a name, as `TextModel.load` takes it
   * @throws SparkError as {@link Cluster.load} and `TextModel.load`; ERR_UNSUPPORTED for encoders and ONNX models, and for numbers of
   * nodes that do not divide the heads
   */
  async loadText(source: string, options: ClusterTextOptions = {}): Promise<ClusterText> {
    expectText('source', source)
    const isText = (name: string): boolean => stagedTextOptions.includes(name as keyof StagedTextOptions)
    const entries = Object.entries(options)
    const own: ClusterLoadOptions = Object.fromEntries(entries.filter(([name]) => !isText(name)))
    checkOptions(own, [...optionNames.filter(name => name !== 'shapes'), ...stagedTextOptions])
    const text: StagedTextOptions = Object.fromEntries(
      entries.filter(([name]) => isText(name) || name === 'signal'),
    )
    return loadText(source, text, this.#node.stages.store, (model, costs, load) =>
      this.#open(model, costs, own, load),
    )
  }

  async #open(
    model: StagedGraph,
    costs: ModelCosts,
    options: ClusterLoadOptions,
    load: PlaceOptions,
  ): Promise<Pipeline> {
    const { signal, graceMs = 10_000, onEvent = () => {} } = options
    const { stages } = this.#node
    const given = { ...placeOptions(options), ...load }
    const live = await this.#fleet(options)
    const shared = { graph: model.graph, costs }
    const isTensor = options.strategy === 'tensor'
    const own =
      given.tensorParallel && !isTensor && live.nodeIds.size > 1 ? withSums(costs, model.graph) : costs
    const plans = isTensor
      ? this.#tensorPlans(shared, live, options)
      : await this.#plans(own, live, options, given)
    const pipeline = new Pipeline({
      ...{ model, plans, graceMs, onEvent },
      seat: nodeId => stages.seat(nodeId, this.#nameOf(nodeId)),
      replan: (current, signal) =>
        isTensor
          ? this.#tensorReplan(shared, { ...options, signal })
          : this.#replan(own, current, { ...options, signal }, given),
    })
    await pipeline.load(signal)
    return pipeline
  }

  /**
   * Runs batches through an ONNX model, each on whichever node is free, and gives the outputs in the order of the batches, which are
   * asked for as they are needed. Nodes fetch the model once. Each result counts once, whatever is killed meanwhile; run again, what is
   * done already is not done anew.
   * @param file - path of the model
   * @param batches - feeds as `Model.run` takes them; those of a batch, and its outputs, have at most 64 MiB
   * @throws SparkError ERR_ARGUMENT, ERR_RANGE; ERR_IO naming a batch that was given up after eight tries; the reason of the signal
   * @example
   * for await (const { scores } of cluster.map('model.onnx', batches)) console.log(scores.data)
   */
  map(
    file: string,
    batches: Iterable<Feeds> | AsyncIterable<Feeds>,
    options: ClusterMapOptions = {},
  ): AsyncGenerator<Record<string, Tensor<ElementType>>, void, undefined> {
    return mapBatches(this.#node, file, batches, options)
  }

  /**
   * Has jobs of any kind done by whichever nodes are free, as `mapJobs` does.
   * @throws SparkError as `mapJobs`
   * @example
   * const { results } = await cluster.mapJobs(scenarioJobs('driving', scenarios, 100))
   */
  mapJobs(jobs: readonly JobDescription[], options: ClusterJobsOptions = {}): Promise<MapResult> {
    return mapClusterJobs(this.#node, jobs, options)
  }

  #nameOf(nodeId: string): string | undefined {
    return this.#node.state.nodes.find(({ id }) => id === nodeId)?.name
  }

  async #plans(
    costs: ModelCosts,
    live: LiveNodes,
    options: ClusterLoadOptions,
    given: PlaceOptions,
  ): Promise<StagePlan[]> {
    const plans = plansOf(costs, await place(costs, live.fleet, given), live, options)
    for (const { group = [] } of plans) checkGroup(group, this.#links(options))
    return plans
  }

  /** One stage on all nodes whose memory holds their part, this one first: what is fed need not travel to it. */
  #tensorPlans(model: SharedModel, { fleet, nodeIds }: LiveNodes, options: ClusterLoadOptions): StagePlan[] {
    const { nodeId: own } = this.#node.identity
    const nodes = [...nodeIds].map(([name, nodeId]) => ({ name, nodeId }))
    const there = nodes.filter(({ name }) => fleet.devices.some(({ node }) => node === name))
    const sorted = there.sort((a, b) => Number(b.nodeId === own) - Number(a.nodeId === own))
    checkHeads(model.costs, sorted.length)
    const group = nodesThatFit(model, fleet, sorted, isOnCpu(options) ? 'cpu' : 'cuda')
    checkGroup(group, this.#links(options))
    return [wholeOn(group, model.graph, options)]
  }

  /** The nodes that are left, but for those whose links to the others no longer do, and as many as divide heads. */
  async #tensorReplan(model: SharedModel, options: ClusterLoadOptions): Promise<StagePlan[]> {
    const live = await this.#fleet({ ...options, nodes: 1 })
    const { nodeId: own } = this.#node.identity
    const links = this.#links(options)
    const kept = [own]
    for (const nodeId of live.nodeIds.values())
      if (nodeId !== own && canBeGroup([...kept, nodeId], links)) kept.push(nodeId)
    kept.splice(worldWithin(model.costs, kept.length))
    const nodeIds = new Map([...live.nodeIds].filter(([, nodeId]) => kept.includes(nodeId)))
    return this.#tensorPlans(model, { ...live, nodeIds }, options)
  }

  #links({ maxRttMs }: ClusterLoadOptions): GroupLinks {
    return { state: this.#node.state, nameOf: nodeId => this.#nameOf(nodeId) ?? nodeId, maxRttMs }
  }

  /** The nodes that are there, once there are enough. */
  async #fleet(options: ClusterLoadOptions): Promise<LiveNodes> {
    const { nodes, waitMs = 30_000, signal, strategy } = options
    const until = performance.now() + waitMs
    for (;;) {
      signal?.throwIfAborted()
      const { state } = this.#node
      const wanted = nodes ?? state.nodes.filter(({ isOnline }) => isOnline).length
      const { fleet, nodeIds, leftOut } = fleetOf(state)
      const own = [...nodeIds].find(([, id]) => id === this.#node.identity.nodeId)?.[0]
      const star = own === undefined ? undefined : throughHere(fleet, own)
      const isLate = performance.now() > until
      const links = this.#links(options)
      const needsAll = strategy === 'tensor' || strategy === 'hybrid'
      const isReady = isLate || !needsAll || areMeasured([...nodeIds.values()], links)
      if (star && star.nodes.length >= wanted && isReady) {
        const direct = groupLinksOf(fleet, nodeIds, links)
        return { fleet: await readFleet(star, 'fleet', direct), nodeIds }
      }
      if (isLate)
        throw new SparkError(
          'ERR_IO',
          `${star?.nodes.length ?? 0} of ${wanted} nodes can take layers${leftOut.length > 0 ? `: ${leftOut.join('; ')}` : ''}`,
        )
      await new Promise(resolve => setTimeout(resolve, pollMs))
    }
  }

  /** Layers of nodes that have gone go to others; the rest stays where it is, if that can be. */
  async #replan(
    costs: ModelCosts,
    current: readonly StagePlan[],
    options: ClusterLoadOptions,
    given: PlaceOptions,
  ): Promise<StagePlan[]> {
    const live = await this.#fleet({ ...options, nodes: 1 })
    const names = new Map([...live.nodeIds].map(([name, id]) => [id, name]))
    const links = this.#links(options)
    const kept = current.filter(
      ({ nodeId, group = [nodeId] }) => group.every(id => names.has(id)) && canBeGroup(group, links),
    )
    const layerOf = (end: number): number => costs.layers.findIndex(layer => layer.end === end)
    const pins = kept.map(({ nodeId, group = [nodeId], from, end }) => {
      const first = from === 0 ? 0 : layerOf(from) + 1
      const last = layerOf(end)
      return `${costs.layers[first]!.name}-${costs.layers[last]!.name}=${group.map(id => names.get(id)).join('+')}`
    })
    const placement = await place(costs, live.fleet, { ...given, pins }).catch(() =>
      place(costs, live.fleet, { ...given, pins: [], current: heldBy(kept, costs, live) }),
    )
    return plansOf(costs, placement, live, options).flatMap(plan => besideKept(plan, kept))
  }
}

function checkOptions(options: ClusterLoadOptions, names = optionNames): void {
  expectKnownOptions('options', options, names)
  const { strategy, nodes, waitMs, threads, graceMs, signal, pins = [], maxRttMs, token } = options
  const { backend, sums } = options
  if (strategy !== undefined) expectOneOf('options.strategy', strategy, strategies)
  if (strategy === 'tensor' && pins.length > 0)
    throw argumentError(
      'options.pins',
      "left out for strategy 'tensor', where all nodes have all layers",
      pins,
    )
  if (sums !== undefined) expectOneOf('options.sums', sums, sumChoices)
  if ((sums === 'nccl' && backend === 'cpu') || (sums === 'stream' && backend === 'cuda'))
    throw argumentError('options.sums', `another than '${sums}' for backend '${backend}'`, sums)
  if (maxRttMs !== undefined && !(maxRttMs > 0))
    throw argumentError('options.maxRttMs', 'milliseconds above 0', maxRttMs)
  if (nodes !== undefined) expectInteger('options.nodes', nodes, 1, 10_000)
  if (waitMs !== undefined) expectInteger('options.waitMs', waitMs, 0)
  if (threads !== undefined) expectInteger('options.threads', threads, 1, 1024)
  if (token !== undefined) expectText('options.token', token)
  if (graceMs !== undefined) expectInteger('options.graceMs', graceMs, 0)
  expectSignal('options.signal', signal)
}

const isOnCpu = ({ backend, sums }: ClusterLoadOptions): boolean => backend === 'cpu' || sums === 'stream'

const placeOptions = ({ strategy = 'auto', pins }: ClusterLoadOptions): PlaceOptions => ({
  objective: strategy === 'auto' ? 'latency' : 'throughput',
  tensorParallel: strategy !== 'pipeline',
  ...(pins && { pins }),
})
