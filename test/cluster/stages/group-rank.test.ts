// Ranks of a group that join while they join, leave while they join, and are aborted meanwhile.
import { GraphBuilder, Tensor } from 'dgx-spark'
import t from 'tap'
import { rankFrames } from '#lib/cluster/communicators/stream.js'
import { LinkChannels } from '#lib/cluster/links/channels.js'
import { Fabric } from '#lib/cluster/links/fabric.js'
import { GroupRank } from '#lib/cluster/stages/group-rank.js'
import type { GroupQuestion } from '#lib/cluster/stages/questions.js'
import { RankChannels } from '#lib/cluster/stages/rank-channels.js'
import { splitGraph } from '#lib/graph/rewrites/split.js'
import { backends } from '../../fixtures/backends.js'
import { makeMesh } from '../../fixtures/cluster/mesh.js'

const skip = backends.includes('cpu') ? false : 'no native addon here'
const width = 32

function graph() {
  const g = new GraphBuilder()
  const x = g.input('x', 'f32', [1, width])
  const up = g.initializer('up', Tensor.random([width, width * 2], { seed: 1 }))
  const down = g.initializer('down', Tensor.random([width * 2, width], { seed: 2 }))
  g.output(g.add('MatMul', [g.add('MatMul', [x, up]), down]), 'y')
  return g.build()
}

t.test('joins that overlap', { skip }, async t => {
  const mesh = await makeMesh(t, 2)
  const ranks = [0, 1].map(rank => {
    const link = mesh.peersOf(rank, 2)[1 - rank]!
    const channels = new RankChannels(new LinkChannels(link).open(rankFrames))
    const share = { rank, world: 2 }
    const options = { backend: 'cpu' as const, threads: 1 }
    return new GroupRank({
      ...{ graph: splitGraph(graph(), share).graph, share, options },
      channels: () => channels,
      fabric: new Fabric(),
    })
  })
  const [a, b] = ranks as [GroupRank, GroupRank]
  const { signal } = new AbortController()
  const join = (group: number): GroupQuestion => ({ op: 'join', stage: 's', group, peers: ['a', 'b'] })
  const io = (message: RegExp) => ({ code: 'ERR_IO', message })

  const left = t.rejects(a.join(join(1), signal), io(/freed/), 'left while it joins')
  await a.leave('the stage is freed')
  await left
  t.equal(a.group, undefined)

  const aborted = t.rejects(a.join(join(2), signal), io(/another rank/), 'aborted while it joins')
  a.abort(2, 'another rank failed')
  await aborted

  const stop = new AbortController()
  const unwanted = t.rejects(a.join(join(3), stop.signal), /enough/, 'whose asker has gone')
  setTimeout(() => stop.abort(new Error('enough')), 20)
  await unwanted

  const replaced = t.rejects(a.join(join(4), signal), io(/made anew/), 'replaced by a later one')
  const models = await Promise.all([a.join(join(5), signal), b.join(join(5), signal)])
  await replaced
  t.same([a.group, b.group], [5, 5])
  const x = Tensor.random([1, width], { seed: 3 })
  const [one, other] = await Promise.all(models.map(model => model.run({ x })))
  t.strictSame((one!.y as Tensor).data, (other!.y as Tensor).data)
  await Promise.all(ranks.map(rank => rank.leave('done')))
  t.same([a.model, b.model], [undefined, undefined])
})
