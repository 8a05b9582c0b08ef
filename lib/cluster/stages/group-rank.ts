// group-rank.ts: this node as a rank of a group that shares a stage: its split of the graph, and what it has joined.
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import type { SplitOptions } from '../../graph/rewrites/split.js'
import { Model } from '../../model/model.js'
import type { PlanRank } from '../communicators/for-plans.js'
import type { LinkChannel } from '../links/channels.js'
import type { Fabric } from '../links/fabric.js'
import { type GroupSums, joinSums } from './group-sums.js'
import { type GroupQuestion, modelOptionsOf, type StageOptions } from './questions.js'
import type { RankChannels } from './rank-channels.js'

/** What a {@link GroupRank} needs. */
export interface GroupRankParts {
  /** The split of the graph of this rank. */
  readonly graph: Graph
  readonly share: SplitOptions
  /** Those of all ranks. */
  readonly options: StageOptions
  /** What goes to another node. */
  readonly channels: (nodeId: string) => RankChannels | undefined
  /** Networks that may carry plaintext. */
  readonly fabric: Fabric
}

interface Joined {
  readonly group: number
  readonly model: Model
  readonly communicator: PlanRank & GroupSums
  readonly close: () => void
}

/** A rank of a group. */
export class GroupRank {
  readonly #parts: GroupRankParts
  #joined: Joined | undefined
  /** The last join, until it has ended. */
  #joining: { readonly group: number; readonly stop: AbortController } | undefined
  /** Joins and leaves, one after the other. */
  #turn: Promise<unknown> = Promise.resolve()

  constructor(parts: GroupRankParts) {
    this.#parts = parts
  }

  /** Number of what it has joined. */
  get group(): number | undefined {
    return this.#joined?.group
  }

  /** How the ranks compute, once it has joined. */
  get sums(): GroupSums | undefined {
    return this.#joined?.communicator
  }

  /** Its model, once it has joined. */
  get model(): Model | undefined {
    return this.#joined?.model
  }

  /**
   * Leaves what it has joined or is about to join, and joins the other ranks anew; resolves when all of them have.
   * @throws SparkError ERR_FORMAT; ERR_IO where there is no link to one, or another join or {@link leave} follows; ERR_CONFLICT for a
   * number that is in use; the reason of the signal
   */
  async join({ group, peers }: GroupQuestion, signal: AbortSignal): Promise<Model> {
    const { world } = this.#parts.share
    if (peers.length !== world)
      throw new SparkError('ERR_FORMAT', `${peers.length} nodes for a world of ${world}`)
    const reason = 'the group is made anew'
    this.#stopJoining(reason)
    const joining = { group, stop: new AbortController() }
    this.#joining = joining
    try {
      return await this.#inTurn(async () => {
        await this.#leave(reason)
        return this.#join(group, peers, AbortSignal.any([signal, joining.stop.signal]))
      })
    } finally {
      if (this.#joining === joining) this.#joining = undefined
    }
  }

  /** Ends what the ranks do, if that is this group. */
  abort(group: number, reason: string): void {
    if (this.#joined?.group === group) this.#joined.communicator.abort(reason)
    if (this.#joining?.group === group) this.#stopJoining(reason)
  }

  /** Frees the model; a run and a join in progress end. */
  async leave(reason: string): Promise<void> {
    this.#stopJoining(reason)
    await this.#inTurn(() => this.#leave(reason))
  }

  #stopJoining(reason: string): void {
    this.#joining?.stop.abort(new SparkError('ERR_IO', reason))
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(act)
    this.#turn = done.catch(() => {})
    return done
  }

  async #join(group: number, peers: readonly string[], signal: AbortSignal): Promise<Model> {
    const { graph, options, share, fabric } = this.#parts
    const { rank, world } = share
    signal.throwIfAborted()
    const { links, close } = this.#open(group, peers)
    let communicator: (PlanRank & GroupSums) | undefined
    const aborted = (): void => communicator?.abort(String(signal.reason?.message ?? signal.reason))
    signal.addEventListener('abort', aborted)
    try {
      communicator = await joinSums({ epoch: group, rank, world, links, close, fabric, options }, signal)
      const { backend } = communicator
      const own = { backend, communicator, signal }
      const model = await Model.fromGraph(graph, { ...modelOptionsOf(options), ...own })
      if (signal.aborted) model.dispose()
      signal.throwIfAborted()
      this.#joined = { group, model, communicator, close }
      return model
    } catch (error) {
      communicator?.abort(`rank ${rank} failed: ${(error as Error).message}`)
      await communicator?.leave()
      close()
      throw signal.aborted ? signal.reason : error
    } finally {
      signal.removeEventListener('abort', aborted)
    }
  }

  async #leave(reason: string): Promise<void> {
    const joined = this.#joined
    this.#joined = undefined
    if (!joined) return
    joined.communicator.abort(reason)
    joined.model.dispose()
    await joined.communicator.leave()
    joined.close()
  }

  #open(group: number, peers: readonly string[]): { links: (LinkChannel | undefined)[]; close: () => void } {
    const { share, channels } = this.#parts
    const opened: RankChannels[] = []
    const close = (): void => {
      for (const each of opened) each.close(group)
    }
    try {
      const links = peers.map((nodeId, rank) => {
        if (rank === share.rank) return undefined
        const others = channels(nodeId)
        if (!others) throw new SparkError('ERR_IO', `rank ${share.rank} has no link to node ${nodeId}`)
        const link = others.open(group)
        if (!link) throw new SparkError('ERR_CONFLICT', `group ${group} is in use`)
        opened.push(others)
        return link
      })
      return { links, close }
    } catch (error) {
      close()
      throw error
    }
  }
}
