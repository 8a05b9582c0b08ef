// Ten seconds of the stress of lifetimes; npm run nightly takes ten minutes.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { backends } from '../fixtures/backends.js'

t.test(
  'threads that allocate, bind, run, transfer, dispose and terminate at random',
  {
    skip: !backends.includes('cpu'),
  },
  async t => {
    const stress = path.resolve('test/fixtures/stress/main.js')
    const env = { ...process.env, NODE_OPTIONS: '' }
    const { status, stdout, stderr } = spawnSync(process.execPath, [stress, '10'], { encoding: 'utf8', env })
    t.comment(stdout)
    t.equal(status, 0, stderr)
    t.match(stdout, /\d+ actions, \d+ workers ended[\s\S]*passed/)
  },
)
