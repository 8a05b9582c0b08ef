// own-link.ts: the link of a program of this machine with the node that runs here: it asks, the node answers.
import { SparkError } from '../core/errors.js'
import type { ClusterLoadOptions } from './cluster.js'
import { LinkChannels } from './links/channels.js'
import type { FrameStream } from './links/frame-stream.js'
import type { ClusterNode } from './node/cluster-node.js'
import { connectToOwn } from './node/own-links.js'
import type { Message } from './stages/messages.js'
import type { PipelineEvent } from './stages/pipeline.js'
import { type Answerer, StageLink, stageChannel } from './stages/stage-link.js'

/** The options that travel. */
export type OwnModelOptions = Pick<
  ClusterLoadOptions,
  'strategy' | 'pins' | 'nodes' | 'backend' | 'precision' | 'token' | 'sums'
>

/** What a node has for one program. */
export interface Served {
  /** Answers what the program asks. */
  answer(question: Message, signal: AbortSignal): Promise<Message>
  /** Frees it. */
  dispose(): Promise<void>
}

/** A link whose other side has put a model on the cluster. */
export interface OwnLink {
  /** What it told of the model. */
  readonly words: Message['words']
  /** @throws SparkError what the node throws; ERR_IO when it ends; the reason of the signal */
  ask(question: Message, signal?: AbortSignal): Promise<Message>
  /** Ends the link, and with it the model. */
  close(): Promise<void>
}

/** Answers the questions of a link. */
export const answerOver = (link: FrameStream, answer: Answerer): StageLink =>
  new StageLink(new LinkChannels(link).open(stageChannel), answer)

/** Tells a program what happens to its model. */
export const tellEvents =
  (link: FrameStream) =>
  (event: PipelineEvent): void =>
    void link.call('model-event', event).catch(() => {})

/**
 * Asks the node that runs on this machine to put a model on the cluster.
 * @param folder - of the node
 * @throws SparkError ERR_IO where it does not run or serves no programs; what it throws; the reason of the signal
 */
export async function askOwnNode(
  folder: string,
  words: Message['words'],
  onEvent: (event: PipelineEvent) => void,
  signal?: AbortSignal | undefined,
): Promise<OwnLink> {
  const link = await connectToOwn(folder)
  link.handle('model-event', event => onEvent(event as PipelineEvent))
  const node = answerOver(link, () => Promise.reject(new SparkError('ERR_UNSUPPORTED', 'this is no node')))
  try {
    const answer = await node.ask({ words, tensors: {} }, signal)
    return {
      words: answer.words,
      ask: (question, signal) => node.ask(question, signal),
      close: () => link.close('the program has ended'),
    }
  } catch (error) {
    await link.close('the model was not loaded')
    throw error
  }
}

/** What a node answers a question that does not come at its time. */
export const outOfTurn = ({ words }: Message): SparkError =>
  new SparkError('ERR_FORMAT', `a program asks for ${JSON.stringify(words.op)} out of turn`)

/** What a node calls the nodes of its cluster, for programs: their ids where it knows no name. */
export function namesOf({ state }: ClusterNode): (nodeId: string) => string {
  const names = new Map(state.nodes.map(({ id, name }) => [id, name]))
  return nodeId => names.get(nodeId) ?? nodeId
}
