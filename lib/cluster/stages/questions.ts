// questions.ts: what nodes ask of each other's stages, as it is checked where it arrives.
import { type ActivationType, activationTypes } from '../../core/activation-types.js'
import { SparkError } from '../../core/errors.js'
import type { SplitOptions } from '../../graph/rewrites/split.js'
import type { ModelOptions } from '../../model/model-options.js'
import { type CacheType, cacheTypes } from '../../text/architectures/cache-types.js'
import type { DecoderForm } from '../../text/generation/decoder-engine.js'
import { maxWorld } from '../communicators/communicator.js'
import { parseManifest } from '../weights/manifest.js'
import type { StageParts } from './staged-model.js'
import { type SumsChoice, sumChoices } from './sum-choices.js'

/** How a stage is run. */
export interface StageOptions {
  /** Default: the best of the node. */
  readonly backend?: 'auto' | 'cpu' | 'js' | 'cuda'
  /** What a group of nodes sums over. Default: `auto`. */
  readonly sums?: SumsChoice
  /** As of `Model.load`. */
  readonly precision?: string
  /** Of a stage on the CPU. */
  readonly threads?: number
  /** What the asker may do on the node, and until when. Default: what nodes may do for each other. */
  readonly token?: string
}

/** Those of a model. */
export const modelOptionsOf = ({ token: _, sums: __, ...options }: StageOptions): ModelOptions =>
  options as ModelOptions

/** Fetch the parts, and keep the stage under a name. */
export interface LoadQuestion {
  readonly op: 'load'
  readonly stage: string
  readonly parts: StageParts
  readonly options: StageOptions
}

/** Run a stage: on its own, or as the step of a sequence whose states it keeps. */
export interface RunQuestion {
  readonly op: 'run'
  readonly stage: string
  readonly sequence: string | undefined
  readonly step: number
  readonly outputs: readonly string[] | undefined
  /** Whether nobody wants the results: those of another rank are taken. */
  readonly quiet: boolean
}

/** Join the ranks that share a stage, or end what they do together. */
export interface GroupQuestion {
  readonly op: 'join' | 'abort'
  readonly stage: string
  /** Number of what they do together; a later one of the same stage replaces it. */
  readonly group: number
  /** Ids of their nodes, by rank. */
  readonly peers: readonly string[]
}

/** What follows the runs of a sequence: begin it, with the states that came; tell its states; end it. */
export interface SequenceQuestion {
  readonly op: 'begin' | 'states' | 'end'
  readonly stage: string
  readonly sequence: string
  readonly step: number
}

/** Free a stage. */
export interface UnloadQuestion {
  readonly op: 'unload'
  readonly stage: string
}

/** What is asked of a stage. */
export type StageQuestion = LoadQuestion | RunQuestion | GroupQuestion | SequenceQuestion | UnloadQuestion

const maxFiles = 1000
const maxNames = 65_536
const maxNodes = 2 ** 31
const maxGroup = 2 ** 32 - 1
const maxTokenLength = 8192

const isName = (value: unknown): value is string => typeof value === 'string' && value.length <= 4096
const isShortName = (value: unknown): value is string =>
  typeof value === 'string' && /^[\w.-]{1,100}$/.test(value)
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0

/**
 * Reads a question of another node.
 * @throws SparkError ERR_FORMAT
 */
export function checkQuestion(words: Readonly<Record<string, unknown>>): StageQuestion {
  const { op, stage, sequence, step = 0, outputs } = words
  if (!isShortName(stage)) throw wrong('no stage')
  if (op === 'load')
    return { op, stage, parts: checkParts(words.parts), options: checkOptions(words.options) }
  if (op === 'unload') return { op, stage }
  if (op === 'join' || op === 'abort') {
    const { group, peers = [] } = words
    if (!isCount(group) || group > maxGroup) throw wrong('no number of a group')
    if (!isList(peers, maxWorld, isShortName)) throw wrong('no nodes of a group')
    return { op, stage, group, peers } as GroupQuestion
  }
  if (!isCount(step)) throw wrong('a step that is no number')
  if (op === 'run') {
    if (sequence !== undefined && !isShortName(sequence)) throw wrong('no sequence')
    if (outputs !== undefined && !isList(outputs, maxNames, isName)) throw wrong('no names of outputs')
    const quiet = words.quiet === true
    return { op, stage, sequence, step, outputs: outputs as string[] | undefined, quiet }
  }
  if (op !== 'begin' && op !== 'states' && op !== 'end') throw wrong(`op ${JSON.stringify(op)?.slice(0, 40)}`)
  if (!isShortName(sequence)) throw wrong('no sequence')
  return { op, stage, sequence, step }
}

/** Reads what a stage is made of, as another node tells it. @throws SparkError ERR_FORMAT */
export function checkParts(value: unknown): StageParts {
  const { files, ends, index, states, names, decoder, share } = (value ?? {}) as Record<string, unknown>
  const isRange = (range: unknown): boolean => {
    const { begin, end } = (range ?? {}) as Record<string, unknown>
    return isCount(begin) && isCount(end) && begin <= end
  }
  if (!isList(files, maxFiles, file => isList((file as { ranges?: unknown })?.ranges, maxNames, isRange)))
    throw wrong('no files')
  if (files.length === 0) throw wrong('no files')
  const checked = (files as StageParts['files']).map(({ manifest, ranges }) => ({
    manifest: parseManifest(manifest),
    ranges,
  }))
  const isPlace = (end: unknown, i: number): boolean =>
    isCount(end) && end < maxNodes && end > Number((ends as number[])[i - 1] ?? 0)
  if (!isList(ends, maxNames, isPlace)) throw wrong('no places to cut')
  if (!isCount(index) || index > ends.length) throw wrong('no index')
  if (!isList(states, maxNames, pair => isList(pair, 2, isName) && pair.length === 2))
    throw wrong('no states')
  if (!isList(names, 2, list => isList(list, maxNames, isName))) throw wrong('no names')
  const form = decoder === undefined ? {} : { decoder: checkDecoder(decoder) }
  const rank = share === undefined ? {} : { share: checkShare(share) }
  return { files: checked, ends, index, states, names, ...form, ...rank } as StageParts
}

function checkShare(value: unknown): SplitOptions {
  const { rank, world } = (value ?? {}) as Record<string, unknown>
  if (!isCount(world) || world > maxWorld || !isCount(rank) || rank >= world) throw wrong('no rank')
  return { rank, world }
}

function checkDecoder(value: unknown): DecoderForm {
  const { blocks, blockSize, cacheType, activations } = (value ?? {}) as Record<string, unknown>
  const isSize = (size: unknown): boolean => isCount(size) && size >= 1 && size < 2 ** 31
  if (!isSize(blocks) || !isSize(blockSize)) throw wrong('a cache without sizes')
  if (!cacheTypes.includes(cacheType as CacheType)) throw wrong('a cache of unknown type')
  if (!activationTypes.includes(activations as ActivationType)) throw wrong('unknown activations')
  return { blocks, blockSize, cacheType, activations } as DecoderForm
}

function checkOptions(value: unknown): StageOptions {
  const { backend, sums, precision, threads, token } = (value ?? {}) as Record<string, unknown>
  const known = [undefined, 'auto', 'cpu', 'js', 'cuda']
  if (!known.includes(backend as string | undefined)) throw wrong('an unknown backend')
  if (sums !== undefined && !sumChoices.includes(sums as SumsChoice)) throw wrong('unknown sums')
  if (precision !== undefined && !isShortName(precision)) throw wrong('an unknown precision')
  if (threads !== undefined && !(isCount(threads) && threads >= 1 && threads <= 1024))
    throw wrong('threads that are no number')
  if (token !== undefined && !(typeof token === 'string' && token.length <= maxTokenLength))
    throw wrong('a token that is none')
  return {
    ...(backend !== undefined && { backend: backend as NonNullable<StageOptions['backend']> }),
    ...(sums !== undefined && { sums: sums as SumsChoice }),
    ...(precision !== undefined && { precision }),
    ...(threads !== undefined && { threads }),
    ...(token !== undefined && { token }),
  }
}

function isList(
  value: unknown,
  max: number,
  isItem: (item: unknown, index: number) => boolean,
): value is unknown[] {
  return Array.isArray(value) && value.length <= max && value.every(isItem)
}

const wrong = (what: string): SparkError =>
  new SparkError('ERR_FORMAT', `a question about stages has ${what}`)
