// node-jobs.ts: the part of a node in shared work: it takes jobs of the cluster whenever it is free, and hands out its own.
import { rm } from 'node:fs/promises'
import path from 'node:path'
import { expectInteger, expectKnownOptions } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import type { ControlPlane } from '../control/control-plane.js'
import type { PressureGate } from '../devices/pressure-gate.js'
import type { JobBlobs } from '../jobs/blobs.js'
import type { JobHandler, JobHandlers, JobQueueOptions } from '../jobs/jobs.js'
import type { NodeSkills } from '../jobs/kinds.js'
import { RemoteJobs, shareJobs } from '../jobs/remote-jobs.js'
import { type WorkerEvent, WorkerLoop } from '../jobs/worker-loop.js'
import type { FrameStream } from '../links/frame-stream.js'
import type { StageService } from '../stages/stage-service.js'
import type { NodeAudit } from './node-audit.js'

/** What a node does of the jobs of its cluster. */
export interface NodeJobsOptions {
  /** Jobs at a time. Default: 1. */
  readonly slots?: number
  /** Threads of each model on the CPU. Default: one for each core. */
  readonly threads?: number
  /** What it has by name, for jobs that name it. Models that jobs bring need none. Default: scenarios with `driving`. */
  readonly skills?: Omit<NodeSkills, 'shared'>
}

/** Checks options. @throws SparkError ERR_ARGUMENT */
export function expectJobsOptions(options: NodeJobsOptions): void {
  expectKnownOptions('options.jobs', options, ['slots', 'threads', 'skills'])
  const { slots, threads } = options
  if (slots !== undefined) expectInteger('options.jobs.slots', slots, 1, 1024)
  if (threads !== undefined) expectInteger('options.jobs.threads', threads, 1, 1024)
}

/** Where nodes have their jobs. */
export const clusterQueue: JobQueueOptions = { queue: 'cluster', leaseMs: 5000, tries: 8 }

/** Milliseconds that what jobs took and gave is kept after its last use, as the results in the control plane are. */
const keptMs = 7 * 24 * 3_600_000
/** How often it is looked for what is over. */
const sweepMs = 24 * 3_600_000

/** What {@link NodeJobs} need of their node. */
export interface NodeJobsParts {
  readonly nodeId: string
  /** Folder of the node. */
  readonly home: string
  readonly control: ControlPlane
  readonly stages: StageService
  readonly audit: Pick<NodeAudit, 'record'>
  /** While it is closed this node takes no jobs. */
  readonly gate: PressureGate | null
}

/** The jobs of a node: those that it does, and those that it has done. */
export class NodeJobs {
  readonly #parts: NodeJobsParts
  readonly #options: NodeJobsOptions | false
  readonly #links = new Map<FrameStream, WorkerLoop | undefined>()
  readonly #ending = new AbortController()
  #own: WorkerLoop | undefined
  #handlers: JobHandlers = {}
  #closeModels = async (): Promise<void> => {}
  /** Callers here whose jobs are in the queue. */
  #callers = 0
  #running = 0
  readonly #waiting: (() => void)[] = []

  private constructor(parts: NodeJobsParts, options: NodeJobsOptions | false) {
    this.#parts = parts
    this.#options = options
  }

  /** Begins to take jobs, unless the options are false. */
  static async open(parts: NodeJobsParts, options: NodeJobsOptions | false = {}): Promise<NodeJobs> {
    const jobs = new NodeJobs(parts, options)
    jobs.#sweep()
    if (options) await jobs.#prepare(options)
    // Of a control plane that is shared jobs may come at any time.
    if (parts.control.kind === 'nats') jobs.#workHere()
    return jobs
  }

  /** Where long values are. */
  get blobs(): JobBlobs {
    const { stages } = this.#parts
    return { store: stages.store, sources: () => stages.sources }
  }

  /** Hands jobs of this node to the one at the other end, and does those of that one. */
  attach(link: FrameStream): void {
    this.#links.set(link, undefined)
    if (this.#parts.control.kind === 'embedded') shareJobs(link, this.#parts.control, clusterQueue)
    link.handle('jobs.open', isOpen => this.#told(link, isOpen === true))
    if (this.#callers > 0) this.#tell(link, true)
    void link.closed.then(() => {
      void this.#told(link, false)
      this.#links.delete(link)
    })
  }

  /** Lets all nodes know that there are jobs here, until it is disposed. */
  announce(): Disposable {
    if (this.#callers++ === 0) this.#tellAll(true)
    if (this.#parts.control.kind === 'embedded') this.#workHere()
    let isOver = false
    return {
      [Symbol.dispose]: () => {
        if (isOver) return
        isOver = true
        if (--this.#callers > 0) return
        this.#tellAll(false)
        if (this.#parts.control.kind === 'embedded') this.#endHere()
      },
    }
  }

  /** Ends: jobs that run here are aborted, and other nodes do them. */
  async close(): Promise<void> {
    this.#ending.abort()
    const loops = [...this.#links.values(), this.#own]
    this.#links.clear()
    this.#own = undefined
    await Promise.all(loops.map(loop => loop?.close()))
    await this.#closeModels()
  }

  async #prepare({ threads, skills }: NodeJobsOptions): Promise<void> {
    const [{ jobHandlers }, { SharedModels }] = await Promise.all([
      import('../jobs/kinds.js'),
      import('../jobs/shared-models.js'),
    ])
    const { nodeId, home, audit } = this.#parts
    const folder = path.join(home, 'job-models')
    await rm(folder, { recursive: true, force: true })
    const shared = new SharedModels({
      ...{ folder, blobs: this.blobs, ...(threads !== undefined && { threads }) },
      onFetched: (who, bytes) => void audit.record({ op: 'transfer', who: who || nodeId, bytes }),
    })
    this.#closeModels = () => shared.close()
    const handlers = jobHandlers({ simulations: { driving }, ...skills, shared })
    this.#handlers = Object.fromEntries(
      Object.entries(handlers).map(([kind, handler]) => [kind, this.#limited(handler)]),
    )
  }

  /** So many at a time, whoever gave them, and none under pressure. */
  #limited(handler: JobHandler): JobHandler {
    const { slots = 1 } = this.#options as NodeJobsOptions
    return async (params, context) => {
      while (this.#running >= slots) await new Promise<void>(resolve => this.#waiting.push(resolve))
      this.#running++
      try {
        context.signal.throwIfAborted()
        if (this.#parts.gate?.isClosed)
          throw new SparkError('ERR_BUSY', `node ${this.#parts.nodeId} paused before the job began`)
        return await handler(params, context)
      } finally {
        this.#running--
        this.#waiting.shift()?.()
      }
    }
  }

  /** Removes long values that nobody asks for any more. */
  #sweep(): void {
    const remove = (): void => {
      this.#parts.stages.store.removeUnused(keptMs).catch(error => debug((error as Error).message))
    }
    const timer = setInterval(remove, sweepMs).unref()
    this.#ending.signal.addEventListener('abort', () => clearInterval(timer), { once: true })
    remove()
  }

  #workHere(): void {
    if (this.#options && !this.#ending.signal.aborted)
      this.#own ??= this.#loop(this.#parts.control, this.#parts.nodeId)
  }

  #endHere(): void {
    void this.#own?.close()
    this.#own = undefined
  }

  /** Another node has jobs, or has none any more. */
  async #told(link: FrameStream, isOpen: boolean): Promise<void> {
    if (!this.#options || this.#ending.signal.aborted || !this.#links.has(link)) return
    const loop = this.#links.get(link)
    if (isOpen === (loop !== undefined)) return
    this.#links.set(link, isOpen ? this.#loop(new RemoteJobs(link), link.peer.nodeId) : undefined)
    await loop?.close()
  }

  #loop(control: ControlPlane | RemoteJobs, owner: string): WorkerLoop {
    const { slots = 1 } = this.#options as NodeJobsOptions
    return new WorkerLoop(control, {
      ...{ ...clusterQueue, node: this.#parts.nodeId, handlers: this.#handlers, slots, blobs: this.blobs },
      gate: this.#parts.gate,
      onJob: job => this.#record(job, owner),
    })
  }

  #record({ from, bytes, kind, outcome }: WorkerEvent, owner: string): void {
    const result = outcome === 'stored' || outcome === 'known' ? 'ok' : `${kind}: ${outcome}`
    void this.#parts.audit.record({ op: 'compute', who: from ?? owner, bytes, result })
  }

  #tellAll(isOpen: boolean): void {
    if (this.#parts.control.kind === 'embedded')
      for (const link of this.#links.keys()) this.#tell(link, isOpen)
  }

  #tell(link: FrameStream, isOpen: boolean): void {
    if (this.#parts.control.kind === 'embedded')
      link.call('jobs.open', isOpen).catch(error => debug(`jobs.open: ${(error as Error).message}`))
  }
}

/** Runs scenarios with the controllers that the library brings. */
async function driving(): Promise<import('../../simulation/runner.js').ScenarioRunner> {
  const [{ ScenarioRunner }, { idm, laneKeeping }] = await Promise.all([
    import('../../simulation/runner.js'),
    import('../../simulation/controllers.js'),
  ])
  return new ScenarioRunner({ algorithm: [idm(), laneKeeping()] })
}
