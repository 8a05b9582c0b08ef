// train-together.ts: one training on several nodes: checkpoints on each of them, and another world where a rank is lost or one comes.
import { createHash } from 'node:crypto'
import { expectInteger, expectKnownOptions, expectSignal } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import { makeFolder, writeFileAtomic } from '../../io/atomic-write.js'
import { readBytes } from '../../io/read-file.js'
import { checkpointFile, listCheckpoints, readCheckpoint, stepOf } from '../../training/checkpoint.js'
import type { TrainingData } from '../../training/dataset.js'
import type { CheckpointOptions, TrainingEvent } from '../../training/options.js'
import type { GradientExchange } from '../../training/shared-gradients.js'
import type { TrainingSummary } from '../../training/summary.js'
import type { Trainer } from '../../training/trainer.js'
import type { Communicator, RankOf } from '../communicators/communicator.js'

/** Options that a trainer of ranks must have. */
export interface SharedTraining {
  /** Whom it trains with. */
  readonly exchange: GradientExchange
  /** Where its checkpoints are. */
  readonly checkpoint: CheckpointOptions
  /** The checkpoint that all ranks go on from; false: the start. */
  readonly resume: string | false
}

/** Options of {@link trainTogether}. */
export interface TrainTogetherOptions {
  /**
   * Joins a world: the first time, and again after a rank was lost or {@link TrainTogetherOptions.wantsChange} was true on one. Each
   * world has a higher epoch. What it throws ends the training.
   */
  readonly join: () => Promise<Communicator>
  /** Makes a trainer with these options, and others that are the same on all ranks; and the adapter as it was at the start. */
  readonly trainer: (shared: SharedTraining) => Trainer | Promise<Trainer>
  /** The whole data; each rank reads all of them. */
  readonly data: TrainingData
  /** Of this node, in a folder that no other rank has. `every` is the same on all ranks. */
  readonly checkpoint: CheckpointOptions
  /** Whether the world is to change at the next checkpoint: a node wants to come or to go. Default: never. */
  readonly wantsChange?: () => boolean
  /** Told of each world, and the step that it goes on from. */
  readonly onWorld?: (world: RankOf & { readonly step: number }) => void
  /** Told of each step. Steps after the last checkpoint come again where a rank is lost. */
  readonly onStep?: (event: TrainingEvent) => void
  /** Worlds at most. Default 100. */
  readonly maxWorlds?: number
  /** Takes this rank out after the step that runs; the others go on from the last checkpoint. */
  readonly signal?: AbortSignal
}

/** Bytes that a checkpoint of another rank may have. */
const maxCheckpointBytes = 2 ** 31 - 1

/**
 * Trains with other ranks, to the bits that one machine with the same options gets. The world changes at checkpoints only: where a
 * rank is lost, the others go back to the newest checkpoint that any of them has, and who lacks it gets it.
 * @returns what the last world did
 * @throws SparkError ERR_ARGUMENT, what `join` and the trainer throw, ERR_CONFLICT where ranks differ; the reason of the signal
 */
export async function trainTogether(options: TrainTogetherOptions): Promise<TrainingSummary> {
  const known = [
    'join',
    'trainer',
    'data',
    'checkpoint',
    'wantsChange',
    'onWorld',
    'onStep',
    'maxWorlds',
    'signal',
  ]
  expectKnownOptions('options', options, known)
  const { maxWorlds = 100, signal } = options
  expectInteger('options.maxWorlds', maxWorlds, 1)
  expectSignal('options.signal', signal)
  for (let left = maxWorlds; left > 0; left--) {
    signal?.throwIfAborted()
    const communicator = await options.join()
    const summary = await inWorld(communicator, options)
    if (summary) return summary
  }
  throw new SparkError('ERR_IO', `the training did not end in ${maxWorlds} worlds: ranks are lost too often`)
}

/** Trains in one world; undefined where another one is to follow. */
async function inWorld(
  communicator: Communicator,
  options: TrainTogetherOptions,
): Promise<TrainingSummary | undefined> {
  const exchange = new WatchedExchange(communicator)
  try {
    const resume = await commonCheckpoint(communicator, exchange, options.checkpoint.folder)
    const { epoch, rank, world } = communicator
    options.onWorld?.({ epoch, rank, world, step: resume === false ? 0 : stepOf(resume) })
    const trainer = await options.trainer({ exchange, checkpoint: options.checkpoint, resume })
    const summary = await train(trainer, exchange, options)
    await communicator.leave().catch(error => debug((error as Error).message))
    return summary
  } catch (error) {
    communicator.abort((error as Error).message.slice(0, 200))
    await communicator.leave().catch(() => {})
    if (!exchange.isLost || options.signal?.aborted) throw error
    debug(`epoch ${communicator.epoch} ended: ${(error as Error).message}`)
    return undefined
  }
}

async function train(
  trainer: Trainer,
  exchange: WatchedExchange,
  { data, wantsChange, onStep, signal }: TrainTogetherOptions,
): Promise<TrainingSummary | undefined> {
  const steps = trainer.steps(data)
  try {
    for (;;) {
      const { done, value } = await steps.next()
      if (done) {
        // Nobody goes before all have ended: a rank that is lost now would leave others without a world.
        await exchange.allGather(new Uint8Array(1))
        return value
      }
      onStep?.(value)
      signal?.throwIfAborted()
      if (value.checkpoint === undefined) continue
      const flags = await exchange.allGather(Uint8Array.of(wantsChange?.() ? 1 : 0))
      if (flags.some(([flag]) => flag === 1)) return undefined
    }
  } finally {
    await steps.return(undefined as never).catch(error => debug((error as Error).message))
  }
}

/** Tells failures of the world from all others. */
class WatchedExchange implements GradientExchange {
  readonly rank: number
  readonly world: number
  readonly #communicator: Communicator
  isLost = false

  constructor(communicator: Communicator) {
    this.rank = communicator.rank
    this.world = communicator.world
    this.#communicator = communicator
  }

  allGather(bytes: Uint8Array): Promise<Uint8Array[]> {
    return this.watch(this.#communicator.allGather(bytes))
  }

  async watch<T>(call: Promise<T>): Promise<T> {
    try {
      return await call
    } catch (error) {
      this.isLost = true
      throw error
    }
  }
}

/** What a rank says of its newest checkpoint: step and bytes as f64, then the SHA-256. */
const entryBytes = 48

/**
 * The newest checkpoint that any rank has, in the folder of this one; false where none has any.
 * @throws SparkError ERR_IO, ERR_FORMAT
 */
async function commonCheckpoint(
  communicator: Communicator,
  exchange: WatchedExchange,
  folder: string,
): Promise<string | false> {
  const own = await newestReadable(folder)
  const bytes = own === undefined ? new Uint8Array(0) : await readBytes(own)
  const entry = new Uint8Array(entryBytes)
  new Float64Array(entry.buffer, 0, 2).set([own === undefined ? 0 : stepOf(own), bytes.length])
  entry.set(createHash('sha256').update(bytes).digest(), 16)
  const entries = (await exchange.allGather(entry)).map(given => new Uint8Array(given))
  const places = entries.map(given => new Float64Array(given.buffer, 0, 2))
  const newest = Math.max(...places.map(([step]) => step!))
  if (newest === 0) return false
  const root = places.findIndex(([step]) => step === newest)
  const file = checkpointFile(folder, newest)
  if (places.every(([step]) => step === newest)) return file
  const length = places[root]![1]!
  if (!Number.isSafeInteger(length) || length < 0 || length > maxCheckpointBytes)
    throw new SparkError('ERR_FORMAT', `rank ${root} has a checkpoint of ${length} bytes`)
  const content = communicator.rank === root ? bytes : new Uint8Array(length)
  await exchange.watch(communicator.broadcast(content, root))
  if (places[communicator.rank]![0] === newest) return file
  const hash = createHash('sha256').update(content).digest()
  if (!hash.equals(entries[root]!.subarray(16)))
    throw new SparkError('ERR_FORMAT', `the checkpoint of rank ${root} was damaged on its way`)
  await makeFolder(folder)
  await writeFileAtomic(file, [content])
  return file
}

/** The newest checkpoint of a folder that can be read. */
async function newestReadable(folder: string): Promise<string | undefined> {
  for (const file of (await listCheckpoints(folder)).reverse()) {
    try {
      await readCheckpoint(file)
      return file
    } catch (error) {
      debug((error as Error).message)
    }
  }
  return undefined
}
