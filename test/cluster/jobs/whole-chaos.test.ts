// Nodes in network namespaces while they, their ranks, the leader and nats-server are killed, links are cut, lossy, slow or late, and disks
// are full: each job has one result, each sequence and training goes on, and all of them equal an undisturbed run. Prints how long each
// kind of event takes to recover from.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { randomGenerator } from '#lib/core/random.js'
import { addressOf, ChaosNetwork, type MachineName } from '../../fixtures/cluster/chaos-network.js'
import { Supervised, script } from '../../fixtures/cluster/chaos-process.js'
import { stepsOfRun, undisturbed, writeModels } from '../../fixtures/cluster/chaos-work.js'
import { lab } from '../../fixtures/cluster/lab.js'
import { canMakeNetworks } from '../../fixtures/cluster/namespaces.js'
import { needsNats } from '../../fixtures/cluster/nats.js'
import { training } from '../../fixtures/cluster/train-rank.js'
import { train } from '../../fixtures/models/small-training.js'
import { bytesOf } from '../../fixtures/models/trainable.js'

/** CHAOS_JOBS, CHAOS_RUNS and CHAOS_EVENTS of CHAOS_KINDS at night. */
const jobs = Number(process.env.CHAOS_JOBS ?? 20)
const runs = Number(process.env.CHAOS_RUNS ?? 2)
const events = Number(process.env.CHAOS_EVENTS ?? 0)
const seed = Number(process.env.CHAOS_SEED ?? 3)
const only = (process.env.CHAOS_KINDS ?? 'all').split(',')
const patienceMs = 120_000
const main = path.resolve(import.meta.dirname, '../../../dist/cli/main.js')

const folder = t.testdir({})

t.test(
  `${jobs} jobs, ${runs} runs and ${events} events`,
  { skip: events === 0 ? 'minutes of it are for npm run nightly' : (needsNats.skip ?? canMakeNetworks()) },
  async t => {
    const ranks = await lab(t, 2)
    await writeModels(folder)
    const wanted = await undisturbed(folder, jobs, runs)
    const adapter = createHash('sha256')
      .update(bytesOf((await train(training)).adapter))
      .digest('hex')
    const chaos = new Chaos(folder, ranks)
    t.teardown(() => chaos.close())
    await chaos.open()
    for (let event = 0; event < events; event++) await chaos.next(event)
    await chaos.finish()
    t.strictSame(chaos.jobs, wanted.jobs, 'results of jobs, each once')
    t.strictSame(chaos.runs, wanted.runs, 'results of sequences, each once')
    t.equal(chaos.stored, jobs, 'records of jobs')
    t.strictSame(
      [...chaos.trained].filter(digest => digest !== adapter),
      [],
      'trainings',
    )
    t.strictSame(chaos.wrong, [])
    t.comment(chaos.table())
  },
)

type Kind = 'node' | 'rank' | 'leader' | 'nats-server' | 'partition' | 'loss' | 'latency' | 'rate' | 'disk'
const kinds: readonly Kind[] = [
  ...(['node', 'rank', 'leader', 'nats-server', 'partition', 'loss', 'latency', 'rate', 'disk'] as const),
]

class Chaos {
  readonly #folder: string
  readonly #network: ChaosNetwork
  readonly #ranks: Awaited<ReturnType<typeof lab>>
  readonly #random = randomGenerator(seed)
  readonly #processes = new Map<string, Supervised>()
  readonly #joining = new Set<string>()
  readonly #recovered = new Map<Kind, number[]>()
  readonly #notes = new Map<string, number>()
  #codes: string[] = []
  #isMember = false
  #epoch = 0
  #steps = 0
  #lastStep = -1
  #allowed = { jobs: 0, steps: 0 }
  #wake = (): void => {}
  jobs: string[] = []
  runs: string[] = []
  wrong: string[] = []
  trained = new Set<string>()
  stored = -1

  constructor(folder: string, ranks: Awaited<ReturnType<typeof lab>>) {
    this.#folder = folder
    this.#ranks = ranks
    this.#network = new ChaosNetwork(folder, 48)
  }

  async open(): Promise<void> {
    this.#start('proxy', 'switch', () => ({
      line: [
        'test/fixtures/cluster/chaos-proxy.js',
        addressOf('switch'),
        addressOf('lead'),
        '7433',
        '7434',
        '7436',
      ],
    }))
    this.#start('lead', 'lead', () => ({ line: script('chaos-lead.ts'), env: this.#leadTask() }))
    for (const [i, name] of (['near', 'far'] as const).entries()) {
      await this.#until(() => this.#codes.length > i, `a code for ${name}`)
      const code = this.#codes[i]!
      this.#start(name, name, () => ({ line: this.#upLine(name, code) }))
      await this.#until(() => this.#members.has(name), `${name} joins`)
    }
    this.#isMember = true
    for (const rank of [0, 1]) {
      this.#start(`rank-${rank}`, rank === 0 ? 'near' : 'far', () => ({
        line: script('chaos-rank.ts'),
        env: this.#rankTask(rank),
      }))
    }
    this.#processes.get('lead')!.say('work')
  }

  readonly #members = new Set<string>()

  /** One event, and how long it takes until what was asked for before and after it is there. */
  async next(event: number): Promise<void> {
    const choice = kinds.filter(kind => only.includes('all') || only.includes(kind))
    const kind = event < choice.length ? choice[event]! : choice[Math.floor(this.#random() * choice.length)]!
    await sleep(this.#random() * 400)
    const [job, step, trained] = [this.#allowed.jobs, this.#allowed.steps, this.#steps]
    const began = performance.now()
    const undo = await this.#act(kind)
    this.#allow((event + 1) / (events + 1))
    const lifted = sleep(undo ? 2000 + this.#random() * 2000 : 0).then(() => undo?.())
    await this.#until(
      () =>
        this.jobs.length > Math.min(job, jobs - 1) &&
        this.#lastStep >= Math.min(step, runs * stepsOfRun - 1) &&
        (kind !== 'rank' || this.#steps > trained + 1),
      `recovery from event ${event} (${kind})`,
    )
    const times = this.#recovered.get(kind) ?? []
    this.#recovered.set(kind, [...times, performance.now() - began])
    if (process.env.CHAOS_LOG) console.log(`# ${event} ${kind} ${Math.round(performance.now() - began)} ms`)
    await lifted
  }

  async finish(): Promise<void> {
    this.#allow(1)
    await this.#until(() => this.stored >= 0, 'the end')
    await this.#until(() => this.trained.size > 0, 'a training')
  }

  table(): string {
    const rows = kinds.flatMap(kind => {
      const times = [...(this.#recovered.get(kind) ?? [])].sort((a, b) => a - b)
      if (times.length === 0) return []
      const seconds = (ms: number): string => (ms / 1000).toFixed(1)
      return [
        `| ${kind} | ${times.length} | ${seconds(times[times.length >> 1]!)} | ${seconds(times.at(-1)!)} |`,
      ]
    })
    const notes = [...this.#notes].map(([note, count]) => `${count} ${note}`)
    for (const [name, process] of this.#processes)
      if (process.ended > 0) notes.push(`${name} ended ${process.ended} times: ${process.errors.slice(-300)}`)
    return [
      '| event | count | p50, s | max, s |',
      '|---|---|---|---|',
      ...rows,
      ...notes.map(note => `(${note})`),
    ].join('\n')
  }

  async close(): Promise<void> {
    await Promise.all([...this.#processes.values()].map(process => process.stop()))
    this.#killServer()
    this.#network.close()
  }

  async #act(kind: Kind): Promise<(() => void) | undefined> {
    const one = <T>(list: readonly T[]): T => list[Math.floor(this.#random() * list.length)]!
    const worker = one(['near', 'far'] as const)
    const machine = one(['lead', 'near', 'far'] as const)
    switch (kind) {
      case 'node':
        return void (await this.#processes.get(worker)!.kill())
      case 'rank':
        return void (await this.#processes.get(one(['rank-0', 'rank-1']))!.kill())
      case 'leader':
        return void (await this.#processes.get('lead')!.kill())
      case 'nats-server':
        return this.#killServer()
      case 'partition':
        return this.#network.partition(machine)
      case 'loss':
        return this.#network.lose(machine, 10)
      case 'rate':
        return this.#network.limit(machine, 20)
      case 'disk':
        return this.#network.fill(machine)
      case 'latency': {
        const proxy = this.#processes.get('proxy')!
        proxy.say('200')
        return () => proxy.say('0')
      }
    }
  }

  #allow(share: number): void {
    this.#allowed = { jobs: Math.ceil(jobs * share), steps: Math.ceil(runs * stepsOfRun * share) }
    this.#tellLead()
  }

  #tellLead(): void {
    this.#processes.get('lead')!.say(`allow ${this.#allowed.jobs} ${this.#allowed.steps}`)
  }

  async #until(isDone: () => boolean, what: string): Promise<void> {
    const giveUp = performance.now() + patienceMs
    while (!isDone()) {
      if (performance.now() > giveUp) throw new Error(`${what}: not in ${patienceMs} ms: ${this.#state()}`)
      await new Promise<void>(resolve => {
        const timer = setTimeout(resolve, 500)
        this.#wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
  }

  #state(): string {
    const errors = [...this.#processes].map(([name, { errors }]) => `${name}: ${errors.slice(-600)}`)
    return `${this.jobs.length} jobs, step ${this.#lastStep} of ${JSON.stringify(this.#allowed)}\n${this.table()}\n${errors.join('\n')}`
  }

  #start(
    name: string,
    host: MachineName | 'switch',
    task: () => { line: string[]; env?: Record<string, string> },
  ): void {
    const command = () => {
      const { line, env } = task()
      return {
        line: this.#network.inside(host, [process.execPath, '--no-warnings', ...line]),
        ...(env && { env }),
      }
    }
    const onLine = (line: string): void => {
      this.#take(name, line)
      this.#wake()
    }
    this.#processes.set(name, new Supervised({ command, onLine }))
  }

  #take(name: string, line: string): void {
    if (process.env.CHAOS_LOG && !/^(job|step|\{)/.test(line)) console.log(`# ${name}: ${line}`)
    if (name.startsWith('rank')) this.#takeRank(name, line)
    else if (line.startsWith('{')) this.#members.add(name)
    else this.#takeWork(line)
  }

  #takeWork(line: string): void {
    const [what, index = '', digest = ''] = line.split(' ')
    const at = Number(index)
    if (what === 'ready') {
      const lead = this.#processes.get('lead')!
      if (!this.#isMember) for (const line of ['invite', 'invite']) lead.say(line)
      else lead.say('work')
      this.#tellLead()
    } else if (what === 'code') this.#codes.push(index)
    else if (what === 'job') this.#result(this.jobs, at, digest, 'job')
    else if (what === 'run') this.#result(this.runs, at, digest, 'run')
    else if (what === 'step') this.#lastStep = Math.max(this.#lastStep, at)
    else if (what === 'stored') this.stored = at
    else if (what === 'retry' || what === 'event') {
      const note = what === 'event' ? `event ${index}` : line.slice(0, 200)
      this.#notes.set(note, (this.#notes.get(note) ?? 0) + 1)
    }
  }

  /** A lead that is killed before its line was read gives a result again. */
  #result(results: string[], at: number, digest: string, what: string): void {
    if (at > results.length) this.wrong.push(`${what} ${at} comes before ${results.length}`)
    if (at < results.length && results[at] !== digest) this.wrong.push(`${what} ${at} has two results`)
    results[at] = digest
  }

  #takeRank(name: string, line: string): void {
    const [what, digest = ''] = line.split(' ')
    if (what === 'step') this.#steps++
    else if (what === 'trained') this.trained.add(digest)
    else if (what === 'join') {
      this.#joining.add(name)
      if (this.#joining.size < 2) return
      this.#joining.clear()
      this.#epoch++
      for (const rank of ['rank-0', 'rank-1']) this.#processes.get(rank)!.say(`${this.#epoch}`)
    }
  }

  #killServer(): undefined {
    try {
      const file = path.join(this.#network.disk('lead'), 'nats', 'nats-server.pid')
      process.kill(Number(readFileSync(file, 'utf8')), 'SIGKILL')
    } catch {
      // It is not up.
    }
  }

  #leadTask(): Record<string, string> {
    const options = {
      ...{
        home: this.#network.disk('lead'),
        name: 'lead',
        host: addressOf('lead'),
        mdns: false,
        statePort: null,
      },
      ...{ control: 'nats', jobs: { threads: 1 }, ...(!this.#isMember && { create: 'chaos' }) },
    }
    const [firstJob, firstRun] = [this.jobs.length, this.runs.length]
    return { CHAOS: JSON.stringify({ options, folder: this.#folder, jobs, runs, firstJob, firstRun }) }
  }

  #upLine(name: 'near' | 'far', code: string): string[] {
    const at = addressOf(name === 'far' ? 'switch' : 'lead')
    const how =
      this.#isMember || this.#members.has(name)
        ? ['--peer', `${at}:7433`]
        : ['--join', code, '--at', `${at}:7433`]
    return [
      ...[
        main,
        'up',
        '--json',
        '--home',
        this.#network.disk(name),
        '--name',
        name,
        '--host',
        addressOf(name),
      ],
      ...['--no-mdns', '--state-port', '0', '--job-threads', '1', '--nats', `${at}:7436`, ...how],
    ]
  }

  #rankTask(rank: number): Record<string, string> {
    const [first, second] = this.#ranks
    const task = {
      ...{ rank, own: rank === 0 ? first : second, peer: first!.nodeId },
      address: { host: addressOf('near'), port: 7500 },
      folder: path.join(this.#folder, `rank-${rank}`),
    }
    return { CHAOS: JSON.stringify(task) }
  }
}
