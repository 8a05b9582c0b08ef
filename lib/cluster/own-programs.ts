// own-programs.ts: what the node of this machine does for programs that run beside it.
import type { ClusterNode } from './node/cluster-node.js'
import { answerOver, type Served } from './own-link.js'
import { ServedModel } from './own-models.js'
import { ServedText } from './own-text.js'

/** Lets programs of this machine run models through a node: one for each link, until it ends. */
export function serveOwnPrograms(node: ClusterNode): void {
  node.own.onLink = link => {
    let served: Served | undefined
    answerOver(link, (question, signal) => {
      served ??= question.words.op === 'load-text' ? new ServedText(node, link) : new ServedModel(node, link)
      return served.answer(question, signal)
    })
    void link.closed.then(() => served?.dispose())
  }
}
