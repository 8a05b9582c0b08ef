// nats-streams.ts: streams of JetStream that are made where there are none: at first, and after a server came back without them.
import type { StreamConfig } from '@nats-io/jetstream'
import { rememberedMs } from './embedded-queue.js'
import type { NatsLink } from './nats-connection.js'

/** A stream that is there whenever it is used. */
export class NatsStream {
  readonly #link: NatsLink
  readonly #config: Partial<StreamConfig> & { name: string; num_replicas: number }
  #opening: Promise<void> | undefined

  constructor(link: NatsLink, config: Partial<StreamConfig> & { name: string; num_replicas: number }) {
    this.#link = link
    this.#config = config
    link.onReconnect(() => {
      this.#opening = undefined
    })
  }

  /** Makes it, unless it is there. @throws Error, of NATS: to be tried again */
  open(): Promise<void> {
    this.#opening ??= this.#make().catch(error => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  async #make(): Promise<void> {
    const { streams } = this.#link.manager
    const { name, num_replicas } = this.#config
    if (!(await isThere(this.#link, name))) {
      await streams.add(this.#config)
      await writeDown(this.#link, name)
    } else if ((await streams.info(name)).config.num_replicas < num_replicas)
      await streams.update(name, { num_replicas })
  }
}

/** Whether a server has a stream. @throws Error, of NATS */
export async function isThere(link: NatsLink, name: string): Promise<boolean> {
  try {
    await link.manager.streams.info(name)
    return true
  } catch (error) {
    if (link.isMissing(error)) return false
    throw error
  }
}

/**
 * Has the configuration of a new stream written once more: when a disk is full, nats-server 2.9 leaves an empty file, later takes it for
 * a good one, and has lost the stream after its next start.
 * @throws Error, of NATS: to be tried again
 */
export async function writeDown(link: NatsLink, name: string): Promise<void> {
  await link.manager.streams.update(name, {})
}

/** The stream of decisions, and its subject. */
export const [logStreamName, logSubject] = ['EV', 'EV.decisions']

/** Decisions. */
export function logStream(link: NatsLink, replicas: number): NatsStream {
  const { RetentionPolicy, DiscardPolicy } = link.packages.jetstream
  return new NatsStream(link, {
    ...commonConfig(link, replicas),
    name: logStreamName,
    subjects: [logSubject],
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.Old,
    max_msgs: 100_000,
    max_bytes: 2 ** 26,
  })
}

/** The stream of all queues. */
export const workStreamName = 'WQ'

/** Jobs of all queues: a subject for each. */
export function workStream(link: NatsLink, replicas: number): NatsStream {
  const { RetentionPolicy, DiscardPolicy } = link.packages.jetstream
  return new NatsStream(link, {
    ...commonConfig(link, replicas),
    name: workStreamName,
    subjects: [`${workStreamName}.>`],
    retention: RetentionPolicy.Workqueue,
    discard: DiscardPolicy.New,
    discard_new_per_subject: true,
    max_msgs_per_subject: 1,
  })
}

const commonConfig = ({ packages }: NatsLink, replicas: number) => ({
  storage: packages.jetstream.StorageType.File,
  num_replicas: replicas,
  duplicate_window: rememberedMs * 1e6,
})
