// own-text.ts: language models that programs of this machine put on the cluster through the node that runs here.
import path from 'node:path'
import type { ModelBackendChoice } from '../model/engine.js'
import { Generation, type GenerationEnd, type GenerationSource } from '../text/generation/generation.js'
import { pulledPath } from '../text/text-model.js'
import type { GeneratedToken, GenerationOptions } from '../text/text-options.js'
import { Cluster } from './cluster.js'
import type { FrameStream } from './links/frame-stream.js'
import type { ClusterNode } from './node/cluster-node.js'
import {
  askOwnNode,
  namesOf,
  type OwnLink,
  type OwnModelOptions,
  outOfTurn,
  type Served,
  tellEvents,
} from './own-link.js'
import type { Message } from './stages/messages.js'
import type { PipelineEvent } from './stages/pipeline.js'
import type { StagePlan } from './stages/stage-place.js'
import type { ClusterText, StagedTextOptions } from './text/load-text.js'

/** Options of a language model that a program puts on the cluster. */
export type OwnTextOptions = OwnModelOptions & StagedTextOptions

/** Layers of a language model, and the name of the node that has them, or the names of those that share them: `a+b`. */
export interface NamedLayers {
  readonly node: string
  readonly layers: string
  /** What nodes that share them sum over. */
  readonly sums?: StagePlan['sums']
}

/** A language model on several nodes, as a program uses it. */
export interface OwnText {
  readonly architecture: string
  readonly backend: ModelBackendChoice
  /** Which node has which layers. */
  readonly stages: readonly NamedLayers[]
  /** As `TextModel.generate`. */
  generate(prompt: string, options: GenerationOptions): Generation
  /** How the tokenizer writes a token that was generated. */
  tokenOf(id: number): string | undefined
  /** Frees it on all nodes. */
  close(): Promise<void>
}

/** Layers of a language model with the names of their nodes. */
export function namedLayers({ stages }: ClusterText, node: ClusterNode): NamedLayers[] {
  const nameOf = namesOf(node)
  return stages.map(({ nodeId, group = [nodeId], layers, sums }) => ({
    ...{ node: group.map(nameOf).join('+'), layers },
    ...(sums && { sums }),
  }))
}

/** What comes next in a text: a token and how the tokenizer writes it, or the end. */
interface Next {
  readonly token?: GeneratedToken
  readonly spelling?: string | undefined
  readonly end?: GenerationEnd
}

/** A language model of a program, on the node that has put it on the cluster. It generates one text at a time. */
export class ServedText implements Served {
  readonly #node: ClusterNode
  readonly #link: FrameStream
  #text: ClusterText | undefined
  #generation: Generation | undefined
  #tokens: AsyncGenerator<GeneratedToken, void, undefined> | undefined

  constructor(node: ClusterNode, link: FrameStream) {
    this.#node = node
    this.#link = link
  }

  async answer(question: Message, signal: AbortSignal): Promise<Message> {
    const { words } = question
    if (words.op === 'load-text' && !this.#text)
      return said(await this.#load(words.source as string, words.options as OwnTextOptions, signal))
    if (words.op === 'generate' && this.#text) {
      await this.#tokens?.return()
      this.#generation = this.#text.model.generate(words.prompt as string, readOptions(words))
      this.#tokens = this.#generation.tokens()
      return said({})
    }
    if (words.op === 'next' && this.#generation) return said(await this.#next(this.#generation))
    throw outOfTurn(question)
  }

  async dispose(): Promise<void> {
    await this.#text?.dispose()
  }

  async #load(source: string, options: OwnTextOptions, signal: AbortSignal): Promise<object> {
    const onEvent = tellEvents(this.#link)
    this.#text = await new Cluster(this.#node).loadText(source, { ...options, onEvent, signal })
    if (signal.aborted) await this.dispose()
    const { architecture, backend } = this.#text.model
    return { architecture, backend, stages: namedLayers(this.#text, this.#node) }
  }

  async #next(generation: Generation): Promise<Next> {
    const { value: token } = await this.#tokens!.next()
    if (token) return { token, spelling: this.#text!.model.tokenizer.tokenOf(token.id) }
    const { text, finishReason, stop, promptTokens, cachedTokens } = await generation.result()
    const given = generation.generated.reduce((length, token) => length + token.text.length, 0)
    return { end: { finishReason, stop, promptTokens, cachedTokens, rest: text.slice(given) } }
  }
}

const said = (words: object): Message => ({ words: { ...words }, tensors: {} })

/** JSON has no infinite numbers, which biases may be. */
const sentOptions = ({ logitBias = {}, signal: _, ...options }: GenerationOptions): object => ({
  options,
  bias: Object.entries(logitBias).map(([id, bias]) => [id, String(bias)]),
})

function readOptions({ options, bias }: Message['words']): GenerationOptions {
  const entries = (bias as [string, string][]).map(([id, number]) => [id, Number(number)] as const)
  return {
    ...(options as GenerationOptions),
    ...(entries.length > 0 && { logitBias: Object.fromEntries(entries) }),
  }
}

/**
 * Puts a language model on the cluster through the node that runs on this machine.
 * @param folder - of the node
 * @throws SparkError as `askOwnNode`; as `Cluster.loadText`
 */
export async function loadTextThroughOwnNode(
  folder: string,
  source: string,
  given: OwnTextOptions,
  onEvent: (event: PipelineEvent) => void,
): Promise<OwnText> {
  const { onProgress: _, signal, ...options } = given
  const file = path.resolve(await pulledPath(source, given))
  const link = await askOwnNode(folder, { op: 'load-text', source: file, options }, onEvent, signal)
  const { architecture, backend, stages } = link.words as unknown as OwnText
  const spellings = new Map<number, string | undefined>()
  return {
    ...{ architecture, backend, stages },
    generate: (prompt, options) => new Generation(textOver(link, prompt, options, spellings)),
    tokenOf: id => spellings.get(id),
    close: () => link.close(),
  }
}

/** A text that the other side of a link generates. */
function textOver(
  link: OwnLink,
  prompt: string,
  options: GenerationOptions,
  spellings: Map<number, string | undefined>,
): GenerationSource {
  return async (push, left) => {
    const signal = AbortSignal.any([left, ...(options.signal ? [options.signal] : [])])
    await link.ask(said({ op: 'generate', prompt, ...sentOptions(options) }), signal)
    for (;;) {
      const { token, spelling, end } = (await link.ask(said({ op: 'next' }), signal)).words as Next
      if (end) return end
      spellings.set(token!.id, spelling)
      push(token!)
    }
  }
}
