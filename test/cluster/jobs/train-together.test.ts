// Training on several nodes: the bits of one machine, in processes, with ranks that are lost and ranks that come.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import type { Communicator } from '#lib/cluster/communicators/communicator.js'
import { join } from '#lib/cluster/communicators/join.js'
import { trainTogether } from '#lib/cluster/jobs/train-together.js'
import { tlsTransport } from '#lib/cluster/links/tls.js'
import { lab, openDoor } from '../../fixtures/cluster/lab.js'
import { makeMesh, nextLink } from '../../fixtures/cluster/mesh.js'
import { training, trainRank } from '../../fixtures/cluster/train-rank.js'
import { train } from '../../fixtures/models/small-training.js'
import { bytesOf } from '../../fixtures/models/trainable.js'

const alone = bytesOf((await train(training)).adapter)
const root = path.resolve(import.meta.dirname, '../../..')

t.test('two processes', async t => {
  const folder = t.testdir()
  const [own, other] = await lab(t, 2)
  const listener = await tlsTransport().listen(own!, openDoor)
  t.teardown(() => listener.close())
  const result = path.join(folder, 'result')
  const task = {
    own: other,
    peer: own!.nodeId,
    address: listener.address,
    folder: path.join(folder, 'b'),
    result,
  }
  const script = ['--import', './test/fixtures/typescript/register.js', 'test/fixtures/cluster/train-rank.ts']
  const child = spawn(process.execPath, script, {
    cwd: root,
    env: { ...process.env, NODE_OPTIONS: '', RANK: JSON.stringify(task) },
    stdio: 'inherit',
    timeout: 60_000,
  })
  const ended = once(child, 'exit')
  const link = await nextLink(listener)
  const adapter = await trainRank(path.join(folder, 'a'), () =>
    join({ kind: 'stream', epoch: 1, rank: 0, world: 2, peers: [undefined, link] }),
  )
  t.ok(bytesOf(adapter).equals(alone), 'rank 0 has the bits of one machine')
  t.same(await ended, [0, null])
  t.ok(readFileSync(result).equals(alone), 'and so has rank 1')
})

t.test('three threads', async t => {
  const folder = t.testdir()
  const file = path.join(root, 'test/fixtures/cluster/train-rank.ts')
  const ranks = [0, 1, 2].map(async rank => {
    const worker = new Worker(file, {
      workerData: { rank, world: 3, folder: path.join(folder, `rank-${rank}`) },
      execArgv: ['--import', path.join(root, 'test/fixtures/typescript/register.js')],
    })
    const [bytes] = await once(worker, 'message')
    await worker.terminate()
    return Buffer.from(bytes)
  })
  for (const bytes of await Promise.all(ranks)) t.ok(bytes.equals(alone))
})

t.test('a rank is lost between two checkpoints, and another one comes at one', async t => {
  const folder = t.testdir()
  const mesh = await makeMesh(t, 4)
  const worlds: Record<number, number[]> = { 1: [0, 1, 2], 2: [0, 1], 3: [0, 1, 3] }
  let epoch = 1
  const seen: string[] = []
  const enter = (node: number) => (): Promise<Communicator> => {
    const members = worlds[epoch]!
    const peers = members.map(member => mesh.peersOf(node, 4)[member])
    const rank = members.indexOf(node)
    return join({ kind: 'stream', epoch, rank, world: members.length, peers, timeoutMs: 20_000 })
  }
  const lost = new AbortController()
  let comes = false
  let fourth: ReturnType<typeof trainRank> | undefined
  const ranks = [0, 1, 2].map(node =>
    trainRank(path.join(folder, `node-${node}`), enter(node), {
      ...(node === 2 && { signal: lost.signal }),
      onWorld: ({ epoch, world, step }) => node === 0 && seen.push(`${epoch}: ${world} ranks from ${step}`),
      onStep: ({ step }) => {
        if (node === 2 && step === 3) {
          // Its links break, as those of a node that is killed.
          epoch = 2
          lost.abort(new Error('killed'))
          for (const link of mesh.peersOf(2, 4)) link?.destroy(new Error('killed'))
        }
        if (node === 0 && epoch === 2 && step === 4) comes = true
      },
      wantsChange: () => {
        if (!comes || node !== 0) return false
        comes = false
        epoch = 3
        fourth = trainRank(path.join(folder, 'node-3'), enter(3))
        return true
      },
    }),
  )
  await t.rejects(ranks[2]!, { message: 'killed' })
  const adapters = await Promise.all([ranks[0]!, ranks[1]!])
  for (const adapter of [...adapters, await fourth!]) t.ok(bytesOf(adapter).equals(alone))
  t.same(seen, ['1: 3 ranks from 0', '2: 2 ranks from 2', '3: 3 ranks from 4'])
})

t.test('a node without checkpoints gets them; a finished training is finished', async t => {
  const folder = t.testdir()
  const mesh = await makeMesh(t, 2)
  const enter = (rank: number, epoch: number) => () =>
    join({ kind: 'stream', epoch, rank, world: 2, peers: mesh.peersOf(rank, 2), timeoutMs: 20_000 })
  const both = (epoch: number) =>
    Promise.all([0, 1].map(rank => trainRank(path.join(folder, `node-${rank}`), enter(rank, epoch))))
  await both(1)
  rmSync(path.join(folder, 'node-1'), { recursive: true })
  for (const adapter of await both(2)) t.ok(bytesOf(adapter).equals(alone))
})

t.test('worlds that do not come to an end', async t => {
  const broken = {
    kind: 'stream',
    epoch: 1,
    rank: 0,
    world: 2,
    allGather: async () => {
      throw new Error('gone')
    },
    abort() {},
    leave: async () => {},
  } as unknown as Communicator
  const options = {
    data: [],
    checkpoint: { folder: t.testdir() },
    trainer: () => t.fail('no trainer') as never,
  }
  await t.rejects(trainTogether({ ...options, join: async () => broken, maxWorlds: 3 }), {
    code: 'ERR_IO',
    message: /did not end in 3 worlds/,
  })
  const nobody = async () => {
    throw new Error('nobody comes')
  }
  await t.rejects(trainTogether({ ...options, join: nobody }), { message: 'nobody comes' })
})
