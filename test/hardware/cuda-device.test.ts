// Which number CUDA gives the GPU that a caller names: NVML and CUDA count in different orders.
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { FakeDriver, noCompiler } from '../fixtures/fake-driver/fake-driver.js'
import { FakeRoot, profile, runChild } from '../fixtures/machine.js'

const code = (device: string) => `
  import { HardwareInfo } from 'dgx-spark'
  import { cudaDevice } from '#lib/hardware/cuda-device.js'
  const { gpus, bestGpu } = await HardwareInfo.detect()
  const number = await cudaDevice(${device}).catch(({ code, message }) => [code, message])
  const answer = { number, gpus, bestGpu }`

t.test('cudaDevice', { skip: noCompiler || (!loadAddon().addon && 'the addon is not built') }, async t => {
  const fakeDriver = new FakeDriver()
  const root = new FakeRoot({})
  t.teardown(() => {
    fakeDriver.dispose()
    root.dispose()
  })
  const ask = (name: string, device: string) =>
    runChild(code(device), { ...fakeDriver.env(profile(name)), DGX_SPARK_SYSFS_ROOT: root.path })

  const { gpus, bestGpu, number } = ask('two-gpus', 'undefined')
  t.not(gpus[0].index, gpus[0].cudaIndex, 'the orders differ, or this test says nothing')
  t.equal(number, bestGpu.cudaIndex, 'the best one by default')
  for (const gpu of gpus) {
    t.equal(ask('two-gpus', String(gpu.index)).number, gpu.cudaIndex)
    t.equal(ask('two-gpus', `'${gpu.uuid}'`).number, gpu.cudaIndex)
  }
  t.match(ask('two-gpus', '7').number, ['ERR_NO_CUDA', /device is 7, which no GPU has; there are 0 \(/])
  t.match(ask('no-device', '0').number, ['ERR_NO_CUDA', /there are none/])
})
