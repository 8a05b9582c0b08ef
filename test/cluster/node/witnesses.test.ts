// A node as a witness: what it keeps of a checkpoint, whom it blames for one that lies, how much it says at once.
import path from 'node:path'
import t from 'tap'
import type { FrameStream } from '#lib/cluster/links/frame-stream.js'
import { batchesOf, Witnesses } from '#lib/cluster/node/witnesses.js'
import type { AuditLog } from '#lib/cluster/trust/audit.js'
import { logName, parseNote, signCheckpoint, witnessName } from '#lib/cluster/trust/checkpoint.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'

type Handler = (params: unknown) => Promise<unknown>

/** A link to a node, of which only the questions that it asks matter. */
function linkOf({ nodeId }: NodeIdentity) {
  const handlers = new Map<string, Handler>()
  const link = {
    peer: { nodeId },
    handle: (method: string, handler: Handler) => handlers.set(method, handler),
    call: async () => null,
    closed: new Promise(() => {}),
  }
  return {
    link: link as unknown as FrameStream,
    ask: (method: string, params: unknown) => handlers.get(method)!(params),
  }
}

t.test('padded and unsigned checkpoints', async t => {
  const folder = t.testdir({})
  const [self, owner, teller] = await Promise.all(
    ['self', 'owner', 'teller'].map(name => NodeIdentity.open(path.join(folder, name))),
  )
  const links = [linkOf(owner!), linkOf(teller!)]
  const refused: string[] = []
  const witnesses = new Witnesses(
    {
      identity: self!,
      log: { checkpoint: undefined } as AuditLog,
      links: () => links.map(({ link }) => link),
      onRefused: ({ peer }, reason) => refused.push(`${peer.nodeId} ${reason}`),
      onCosigned: () => {},
    },
    AbortSignal.abort(),
  )
  for (const { link } of links) witnesses.answer(link)
  await witnesses.met(links[0]!.link, owner!.publicKey)
  const root = Buffer.alloc(32, 7)
  const signed = signCheckpoint(owner!, 1, root)
  const padding = `— x ${Buffer.alloc(60).toString('base64')}\n`.repeat(600)
  await links[0]!.ask('cosign', { note: `${signed}${padding}`, oldSize: 0, proof: [] })
  const kept = String(await links[0]!.ask('note', null))
  t.same(
    parseNote(kept).signatures.map(({ name }) => name),
    [logName(owner!.nodeId), witnessName(self!.nodeId)],
  )
  t.ok(kept.startsWith(signed))
  const lie = signed.replace('\n1\n', '\n2\n')
  await t.rejects(links[1]!.ask('witnessed', [kept, lie]), { code: 'ERR_DENIED' })
  t.equal(refused.length, 1)
  t.match(refused[0], new RegExp(`^${teller!.nodeId} .*not signed by node ${owner!.nodeId}`))
})

t.test('notes are told in batches that fit a question', async t => {
  const notes = Array.from({ length: 200 }, (_, n) => `${n} ${'—'.repeat(n * 5)}`)
  const batches = batchesOf(notes)
  t.same(batches.flat(), notes)
  for (const batch of batches) t.ok(batch.length <= 64 && Buffer.byteLength(JSON.stringify(batch)) <= 50_000)
  t.same(batchesOf([]), [])
})
