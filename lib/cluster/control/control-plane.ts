// control-plane.ts: what the nodes of a cluster agree on, and through what: decisions, state, work, leases, messages.

/** A value that JSON can hold. Nothing else goes through a control plane. */
export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue }

/** How many members must agree before anything counts as decided, and whether they can at present. */
export interface Quorum {
  /** Nodes or servers that are known. */
  readonly members: number
  /** How many of them must be up for a write to be acknowledged. */
  readonly needed: number
  /** Whether writes are acknowledged at present, as far as is known here. */
  readonly writable: boolean
  /** What this means for the user: two nodes have no quorum, and what the loss of a node does. */
  readonly note: string
}

/** A record of the log. */
export interface LogRecord {
  /** Its number: 1, 2, 3 … */
  readonly seq: number
  /** What was appended. */
  readonly record: JsonValue
}

/**
 * The log of decisions: numbered, in one order for everybody. Telemetry does not belong in it. The newest 100,000 records
 * are kept, or fewer where they are over 64 MiB.
 */
export interface DecisionLog {
  /**
   * Appends a record.
   * @param expect - number that the last record must have at present, 0 for an empty log; by default any
   * @returns the number of the record, which is durable
   * @throws SparkError ERR_CONFLICT where the last record is another one; ERR_IO when it cannot be stored
   */
  append(record: JsonValue, expect?: number): Promise<number>
  /** Records from number `from` on, or from the oldest that is kept, to the last one at present. */
  read(from: number): AsyncIterable<LogRecord>
  /** As {@link read}, and then every record that is appended until `signal` is aborted. */
  follow(from: number, signal: AbortSignal): AsyncIterable<LogRecord>
}

/** A value in a bucket. */
export interface KvEntry {
  /** Its key in the bucket. */
  readonly key: string
  /** What was stored. */
  readonly value: JsonValue
  /** Rises with every change in the bucket, across restarts (buckets in memory: while the control plane runs). */
  readonly revision: number
}

/** What became of a key. */
export interface KvChange {
  /** The key that changed. */
  readonly key: string
  /** undefined where it was deleted or its time was up. */
  readonly value: JsonValue | undefined
  /** That of the change. */
  readonly revision: number
}

/** How a bucket keeps its values. All who open a bucket give the same. */
export interface BucketOptions {
  /** A value is removed when it was not written again for so many milliseconds, at least 100. By default it stays. */
  readonly ttlMs?: number
  /** Keeps the last values in memory only, for what is measured again anyway: they are lost when all members restart. */
  readonly memory?: boolean
}

/** Values by key. Keys consist of letters, digits and `-_=/.`. */
export interface KeyValue {
  /** undefined where there is none. */
  get(key: string): Promise<KvEntry | undefined>
  /**
   * Stores a value under a key that has none.
   * @returns the revision
   * @throws SparkError ERR_CONFLICT where there is one; ERR_IO
   */
  create(key: string, value: JsonValue): Promise<number>
  /**
   * Replaces the value that has this revision.
   * @returns the new revision
   * @throws SparkError ERR_CONFLICT where it has another one, or is gone; ERR_IO
   */
  update(key: string, value: JsonValue, revision: number): Promise<number>
  /** Stores a value whatever was there. @returns the revision */
  put(key: string, value: JsonValue): Promise<number>
  /**
   * Removes a value.
   * @param revision - that it must have; by default any
   * @throws SparkError ERR_CONFLICT, ERR_IO
   */
  delete(key: string, revision?: number): Promise<void>
  /** Keys that have a value. */
  keys(): Promise<string[]>
  /**
   * All values, and then their changes until `signal` is aborted. A reader that is slow sees the last change of each key.
   * Goes on after a loss of the connection.
   */
  watch(signal: AbortSignal): AsyncIterable<KvChange>
}

/** How a queue hands out work. All who open a queue give the same. */
export interface QueueOptions {
  /** A job that is neither finished nor extended for so long is handed out again: 30,000 by default, at least 100. */
  readonly ackWaitMs?: number
  /** How often a job is handed out before it counts as failed: 5 by default. */
  readonly maxDeliveries?: number
}

/** Work that was handed out. */
export interface Job {
  /** What it was added under. */
  readonly id: string
  /** What it was added with. */
  readonly payload: JsonValue
  /** How often it was handed out, this time included. */
  readonly delivery: number
  /** It is done, and leaves the queue, also where it was handed out again meanwhile. @throws SparkError ERR_IO */
  ack(): Promise<void>
  /** It is not done: it is handed out again, at once. */
  nack(): Promise<void>
  /** It takes longer: the ack wait starts anew. */
  extend(): Promise<void>
}

/** What {@link WorkQueue.pull} may wait for. */
export interface PullOptions {
  /** Most jobs: 1 by default, at most 256. */
  readonly max?: number
  /** How long to wait for the first one: 0 by default, which returns what there is. */
  readonly waitMs?: number
  /** Ends the waiting with what there is. */
  readonly signal?: AbortSignal
}

/** Options of {@link WorkQueue.push}. */
export interface PushOptions {
  /** Whether a job that left the queue in the last two minutes is added again. Default: false. */
  readonly again?: boolean
}

/** Work that any node may take. Each job is handed out at least once, so its result must not depend on how often. */
export interface WorkQueue {
  /**
   * Adds a job.
   * @param id - letters, digits and `-_`. A job whose id is in the queue, or was added in the last two minutes, is not
   * added again, so that a caller who does not know whether it was added may try again.
   * @param options - `again`: adds one that has left the queue, however recently
   * @returns whether it was added
   */
  push(id: string, payload: JsonValue, options?: PushOptions): Promise<boolean>
  /** Takes jobs, oldest first. */
  pull(options?: PullOptions): Promise<Job[]>
  /** Jobs that were handed out too often, of the last seven days. */
  failed(): Promise<Pick<Job, 'id' | 'payload'>[]>
}

/** A lease that is held. */
export interface Lease {
  /** What is held. */
  readonly name: string
  /** Who holds it. */
  readonly holder: string
  /** Higher than that of every earlier holder. Goes with each command, and who gets one refuses a lower number. */
  readonly fencing: number
  /** Aborted when the lease is lost: taken over, released, or not renewed in time, by the clock of the holder. */
  readonly lost: AbortSignal
  /** Renews it for its whole time. @throws SparkError ERR_CONFLICT where it is lost; ERR_IO when nobody answers */
  renew(): Promise<void>
  /** Renews it from now on, three times in each period, until it is lost or released. */
  keep(): void
  /** Gives it up, for others to take at once. */
  release(): Promise<void>
}

/** Who holds a lease, as far as is known. */
export interface LeaseHolder {
  /** Who asked for it. */
  readonly holder: string
  /** The number of this holder, see {@link Lease.fencing}. */
  readonly fencing: number
}

/** A lease that one holder at a time may have. */
export interface LeaseRequest {
  /**
   * Takes the lease when it is free, or when its holder did not renew it for its whole time, which is counted here from
   * when its last renewal was seen: clocks need not agree.
   * @param options - `waitMs`: how long to try, 0 by default; `signal` ends the waiting
   * @returns null while another one holds it
   */
  acquire(options?: { readonly waitMs?: number; readonly signal?: AbortSignal }): Promise<Lease | null>
  /** The last holder that has not released it; null where there is none. */
  current(): Promise<LeaseHolder | null>
}

/** A message. */
export interface BusMessage {
  /** What it was published under. */
  readonly subject: string
  /** What it says. */
  readonly payload: JsonValue
}

/** Messages as they come. */
export interface Subscription extends AsyncIterable<BusMessage> {
  /** Resolves when every message that is published from now on will be delivered. */
  readonly ready: Promise<void>
}

/**
 * Messages to whoever listens at the moment; nothing is kept, and a reader who is more than 10,000 messages behind loses the
 * oldest ones. Subjects are words with dots between them.
 */
export interface Bus {
  /** Sends a message to all that listen. @throws SparkError ERR_ARGUMENT, ERR_IO */
  publish(subject: string, payload: JsonValue): Promise<void>
  /** Listens until `signal` is aborted. @param subject - `*` stands for one word, `>` at the end for the rest */
  subscribe(subject: string, signal: AbortSignal): Subscription
}

/** Where the nodes of a cluster keep what they agree on: in this process, or in the servers of NATS JetStream. */
export interface ControlPlane {
  /** Where it keeps what it holds. */
  readonly kind: 'embedded' | 'nats'
  /** Who must agree, and whether they can at present. */
  readonly quorum: Quorum
  /** Decisions. */
  readonly log: DecisionLog
  /** Messages. */
  readonly bus: Bus
  /** A bucket; those of the cluster, such as `nodes`, have options of their own. @throws SparkError ERR_ARGUMENT */
  kv(bucket: string, options?: BucketOptions): KeyValue
  /** A queue. @throws SparkError ERR_ARGUMENT */
  queue(name: string, options?: QueueOptions): WorkQueue
  /**
   * A lease.
   * @param holder - who asks, such as the id of a node
   * @param ttlMs - how long it is held without being renewed, at least 100
   * @throws SparkError ERR_ARGUMENT
   */
  lease(name: string, holder: string, ttlMs: number): LeaseRequest
  /** Ends iterators and timers, gives held leases up, and lets go of folder or connection. */
  close(): Promise<void>
}

/** The buckets of a cluster and how they keep their values. */
export const controlBuckets = {
  /** Heartbeats of nodes, by node id. */
  nodes: { ttlMs: 10_000, memory: true },
  /** Last telemetry of each node, by node id. */
  telemetry: { memory: true },
  /** Which layers are where. */
  placements: {},
  /** Revoked certificates and tokens. */
  revoked: {},
  /** Checkpoints of the audit logs, by node id. */
  checkpoints: {},
  /** Leases. */
  leases: {},
  /** What came of jobs, by their id. The queue forgets ids sooner. */
  'job-results': { ttlMs: 7 * 24 * 3_600_000 },
  /** Why a try of a job failed, by its id. */
  'job-errors': { ttlMs: 600_000 },
  /** Jobs that nobody waits for any more. */
  'job-unwanted': { ttlMs: 600_000 },
} as const satisfies Readonly<Record<string, BucketOptions>>

/** Bytes of JSON that one record, value, job or message may have. */
export const maxPayloadBytes = 512 * 1024
