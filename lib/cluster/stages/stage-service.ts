// stage-service.ts: what a node does for pipelines: has stages of others, gives weights, and asks other nodes.
import { rm } from 'node:fs/promises'
import path from 'node:path'
import { HardwareInfo } from '../../hardware/hardware-info.js'
import type { ModelOptions } from '../../model/model-options.js'
import { rankFrames } from '../communicators/stream.js'
import { gpuOfModel } from '../devices/detect-devices.js'
import type { LinkChannels } from '../links/channels.js'
import type { Fabric } from '../links/fabric.js'
import type { FrameStream } from '../links/frame-stream.js'
import { type ChunkLink, chunkFrames, serveChunks } from '../weights/chunk-link.js'
import { WeightStore } from '../weights/weight-store.js'
import { RankChannels } from './rank-channels.js'
import { type Admission, StageHost, type StageUse } from './stage-host.js'
import { StageLink, stageChannel } from './stage-link.js'
import type { Seat } from './stage-place.js'

interface Peer {
  readonly link: FrameStream
  readonly stages: StageLink
  readonly chunks: ChunkLink
  readonly ranks: RankChannels
}

/** Stages and weights of a node. */
export class StageService {
  /** Chunks of weights, served to other nodes. */
  readonly store: WeightStore
  /** Hears what is done for whom. */
  onUse: (use: StageUse) => void = () => {}
  readonly #nodeId: string
  readonly #host: StageHost
  readonly #peers = new Map<string, Peer>()

  private constructor(nodeId: string, store: WeightStore, host: StageHost) {
    this.#nodeId = nodeId
    this.store = store
    this.#host = host
  }

  /**
   * Opens the folders `weights` and `stages` of a node.
   * @param fabric - networks that may carry plaintext
   * @throws SparkError ERR_BUSY, ERR_IO
   */
  static async open(nodeId: string, home: string, fabric: Fabric): Promise<StageService> {
    const store = await WeightStore.open(path.join(home, 'weights'))
    const folder = path.join(home, 'stages')
    await rm(folder, { recursive: true, force: true })
    const sources = (): readonly ChunkLink[] => service.sources
    const onUse = (use: StageUse): void => service.onUse(use)
    const ranks = (peer: string): RankChannels | undefined => service.#peers.get(peer)?.ranks
    const gpuOf = async (options: ModelOptions) => gpuOfModel(nodeId, await HardwareInfo.detect(), options)
    const host = new StageHost({ folder, store, sources, ranks, fabric, gpuOf, onUse })
    const service = new StageService(nodeId, store, host)
    return service
  }

  /** The nodes that are there, for their chunks. */
  get sources(): readonly ChunkLink[] {
    return [...this.#peers.values()].map(({ chunks }) => chunks)
  }

  /** Takes the frames of a link. @param admit - checks tokens that its node shows */
  attach(link: FrameStream, channels: LinkChannels, admit: Admission): void {
    const { nodeId } = link.peer
    const gave = (bytes: number): void => this.onUse({ op: 'transfer', who: nodeId, bytes, result: 'ok' })
    const chunks = serveChunks(channels.open([chunkFrames.ask, chunkFrames.cancel]), this.store, gave)
    const stages = new StageLink(channels.open(stageChannel), (question, signal, tell) =>
      this.#host.answer(nodeId, question, signal, { admit, tell }),
    )
    const ranks = new RankChannels(channels.open(rankFrames))
    this.#peers.set(nodeId, { link, stages, chunks, ranks })
    this.#host.found(nodeId)
    void link.closed.then(() => {
      if (this.#peers.get(nodeId)?.link !== link) return
      this.#peers.delete(nodeId)
      this.#host.lost(nodeId)
    })
  }

  /** A node that is there, this one included. */
  seat(nodeId: string, name = nodeId): Seat | undefined {
    if (nodeId === this.#nodeId) {
      const never = new AbortController().signal
      const ask: Seat['ask'] = (question, signal = never, tell) =>
        this.#host.answer(nodeId, question, signal, tell && { tell })
      return { nodeId, name, ask }
    }
    const peer = this.#peers.get(nodeId)
    return peer && { nodeId, name, ask: (...question) => peer.stages.ask(...question) }
  }

  /** Frees stages and closes the store. */
  async close(): Promise<void> {
    await this.#host.close()
    await this.store.close()
  }
}
