// Links to nodes that are known by address only.
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { Fabric } from '#lib/cluster/links/fabric.js'
import { PeerLinks } from '#lib/cluster/node/peer-links.js'
import { lab } from '../../fixtures/cluster/lab.js'
import { linkPair } from '../../fixtures/cluster/link-pair.js'

t.test('a node that has connected is not dialled again and again at its address', async t => {
  const [peer, own] = (await lab(t, 2)).sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1))
  const pairs = [
    await linkPair(t, own!, peer!),
    await linkPair(t, own!, peer!),
    await linkPair(t, own!, peer!),
  ]
  let dialled = 0
  const links = new PeerLinks({
    transport: { connect: async () => pairs[++dialled]![0] } as never,
    ...{ credentials: () => own!, policy: {} as never, fabric: new Fabric(undefined) },
    ...{ onOwn: () => {}, onLink: () => {}, onLost: () => {}, onMeasured: () => {} },
  })
  links.take(pairs[0]![0])
  const address = { host: '127.0.0.1', port: 1 }
  const connecting = links.connect('static', () => ({ addresses: [address] }) as never)
  while (dialled === 0) await sleep(5)
  await pairs[1]![0].closed
  // Longer than a node waits until it tries again.
  await sleep(1200)
  t.equal(dialled, 1)
  t.equal(links.link(peer!.nodeId), pairs[0]![0])
  pairs[0]![0].destroy(new Error('lost'))
  while (dialled === 1) await sleep(5)
  t.equal(links.link(peer!.nodeId), pairs[2]![0], 'unless its link is lost')
  await links.close()
  await connecting
})
