// event-types.ts: the types of events by their ordinals in cereal's struct Event. Names have changed and will change again,
// ordinals do not: each has the name of the years 2021 to 2025 and, as aliases, earlier and later ones.
import { didYouMean } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'
import * as camera from './camera-structs.js'
import * as car from './car-structs.js'
import * as control from './control-structs.js'
import * as device from './device-structs.js'
import { at, data, each, type Field, struct, text, u64 } from './fields.js'

/** A type of events. */
export interface EventType<N extends string = string, T = unknown> {
  readonly ordinal: number
  readonly name: N
  /** Reads its value of the struct Event. */
  readonly read: Field<T>
  readonly aliases: readonly string[]
}

const type = <N extends string, T>(
  ordinal: number,
  name: N,
  read: Field<T>,
  ...aliases: readonly string[]
): EventType<N, T> => ({ ordinal, name, read, aliases })

/** An event whose fields are not read. */
const unread: Field<null> = () => null
const encodeIndex = at(0, camera.encodeIndex)
const frame = at(0, camera.frameData)
const sensor = at(0, device.sensorEvent)
const gps = at(0, device.gpsLocation)
const onroadEvents = each(0, control.onroadEvent)
const encodeData = at(
  0,
  struct({
    idx: at(0, camera.encodeIndex),
    data: data(1),
    header: data(2),
    /** Nanoseconds since 1970. */
    unixTimestampNanos: u64(0),
  }),
)

const types = [
  type(1, 'initData', at(0, device.initData)),
  type(2, 'roadCameraState', frame, 'narrowRoadCameraState', 'frame'),
  type(3, 'gpsNMEA', unread),
  type(4, 'sensorEvent', unread),
  type(5, 'can', each(0, car.canData)),
  type(6, 'deviceState', at(0, device.deviceState), 'thermal'),
  type(7, 'controlsState', at(0, control.controlsState), 'live100'),
  type(8, 'liveEvent', unread),
  type(9, 'model', unread),
  type(10, 'features', unread),
  type(11, 'sensorEvents', unread),
  type(12, 'pandaState', unread, 'health'),
  type(13, 'radarState', at(0, control.radarState), 'live20'),
  type(14, 'liveUI', unread),
  type(15, 'roadEncodeIdx', encodeIndex, 'narrowRoadEncodeIdx', 'encodeIdx'),
  type(16, 'liveTracksDEPRECATED', unread, 'liveTracks'),
  type(17, 'sendcan', each(0, car.canData)),
  type(18, 'logMessage', text(0)),
  type(19, 'liveCalibration', at(0, device.liveCalibration), 'extrinsicsCalibration'),
  type(20, 'androidLog', unread, 'operatingSystemLog'),
  type(21, 'gpsLocation', gps),
  type(22, 'carState', at(0, car.carState)),
  type(23, 'carControl', at(0, car.carControl)),
  type(24, 'longitudinalPlan', at(0, control.longitudinalPlan), 'plan'),
  type(31, 'qcomGnss', unread),
  type(33, 'procLog', unread),
  type(34, 'ubloxGnss', unread),
  type(35, 'clocks', unread),
  type(39, 'ubloxRaw', data(0)),
  type(48, 'gpsLocationExternal', gps),
  type(52, 'testJoystick', unread),
  type(59, 'driverState', unread),
  type(60, 'boot', unread),
  type(61, 'liveParameters', at(0, control.liveParameters), 'vehicleParameters'),
  type(62, 'liveMapData', unread),
  type(63, 'cameraOdometry', at(0, camera.cameraOdometry)),
  type(64, 'lateralPlanDEPRECATED', at(0, control.lateralPlan), 'lateralPlan', 'pathPlan'),
  type(66, 'thumbnail', at(0, camera.thumbnail)),
  type(68, 'onroadEvents', onroadEvents, 'carEvents', 'onroadEventsDEPRECATED'),
  type(69, 'carParams', at(0, car.carParams)),
  type(70, 'driverCameraState', frame, 'cabinCameraState', 'frontFrame'),
  type(
    71,
    'driverMonitoringStateDEPRECATED',
    at(0, control.driverMonitoringStateOld),
    'driverMonitoringState',
    'dMonitoringState',
  ),
  type(72, 'liveLocationKalman', at(0, device.liveLocationKalman), 'liveLocationKalmanDEPRECATED'),
  type(73, 'sentinel', at(0, device.sentinel)),
  type(74, 'wideRoadCameraState', frame, 'wideFrame'),
  type(75, 'modelV2', at(0, camera.modelV2)),
  type(76, 'driverEncodeIdx', encodeIndex, 'cabinEncodeIdx', 'frontEncodeIdx'),
  type(77, 'wideRoadEncodeIdx', encodeIndex, 'wideEncodeIdx'),
  type(78, 'managerState', unread),
  type(79, 'uploaderState', unread),
  type(80, 'peripheralState', unread),
  type(81, 'pandaStates', unread),
  type(82, 'navInstruction', unread),
  type(83, 'navRoute', unread),
  type(84, 'navThumbnail', unread),
  type(85, 'errorLogMessage', text(0)),
  type(86, 'roadEncodeData', encodeData, 'narrowRoadEncodeData'),
  type(87, 'driverEncodeData', encodeData, 'cabinEncodeData'),
  type(88, 'wideRoadEncodeData', encodeData),
  type(89, 'qRoadEncodeData', encodeData, 'qNarrowRoadEncodeData'),
  type(90, 'qRoadEncodeIdx', encodeIndex, 'qNarrowRoadEncodeIdx'),
  type(91, 'gnssMeasurements', unread),
  type(92, 'driverStateV2', at(0, camera.driverStateV2)),
  type(93, 'userBookmark', unread, 'userFlag'),
  type(94, 'liveTorqueParameters', at(0, control.liveTorqueParameters), 'lateralTorqueParameters'),
  type(95, 'magnetometer', sensor),
  type(96, 'lightSensor', unread),
  type(97, 'temperatureSensor', unread),
  type(98, 'accelerometer', sensor),
  type(99, 'gyroscope', sensor),
  type(100, 'gyroscope2', sensor),
  type(101, 'accelerometer2', sensor),
  type(102, 'uiDebug', unread),
  type(103, 'soundPressure', unread, 'microphone'),
  type(104, 'navModel', unread),
  type(105, 'mapRenderState', unread),
  type(106, 'uiPlan', unread),
  type(117, 'livestreamRoadEncodeIdx', encodeIndex),
  type(118, 'livestreamWideRoadEncodeIdx', encodeIndex),
  type(119, 'livestreamDriverEncodeIdx', encodeIndex),
  type(127, 'carOutput', at(0, car.carOutput)),
  type(128, 'drivingModelData', at(0, camera.drivingModelData)),
  type(129, 'livePose', at(0, device.livePose), 'deviceMotion'),
  type(130, 'selfdriveState', at(0, control.selfdriveState)),
  type(131, 'liveTracks', at(0, control.radarTracks), 'radarTracks'),
  type(132, 'driverAssistance', unread),
  type(133, 'alertDebug', unread),
  type(134, 'onroadEvents', onroadEvents),
  type(135, 'touch', unread),
  type(146, 'liveDelay', at(0, control.liveDelay), 'lateralDelay'),
  type(147, 'rawAudioData', at(0, device.rawAudioData)),
  type(148, 'bookmarkButton', unread),
  type(149, 'audioFeedback', unread),
  type(150, 'lateralManeuverPlan', unread),
  type(151, 'driverMonitoringState', at(0, control.driverMonitoringState)),
] as const

/** What the values of events are, by name. */
export type EventValues = {
  [K in (typeof types)[number] as K['name']]: ReturnType<K['read']>
}

/** The name of a type of events; one that has none here has its ordinal instead, such as `ordinal152`. */
export type EventName = keyof EventValues | `ordinal${number}`

/** The types by their ordinals. */
export const eventTypes: ReadonlyMap<number, EventType> = new Map(types.map(each => [each.ordinal, each]))

/** The ordinal of a tag of the union: `valid`, 67, stands between the members and has no tag. */
export const ordinalOf = (tag: number): number => (tag < 66 ? tag + 1 : tag + 2)

/** The type of an ordinal. */
export const typeOf = (ordinal: number): EventType =>
  eventTypes.get(ordinal) ?? { ordinal, name: `ordinal${ordinal}`, read: unread, aliases: [] }

/** Whether the fields of a type are read. */
export const isRead = (ordinal: number): boolean => typeOf(ordinal).read !== unread

/**
 * The ordinals that a name stands for: any of its names over the years, or `ordinal152`.
 * @throws SparkError ERR_ARGUMENT
 */
export function ordinalsOf(name: string): number[] {
  const ordinal = /^ordinal(\d{1,5})$/.exec(name)?.[1]
  if (ordinal !== undefined) return [Number(ordinal)]
  const found = types.filter(each => each.name === name || (each.aliases as readonly string[]).includes(name))
  if (found.length > 0) return found.map(each => each.ordinal)
  const known = types.flatMap(each => [each.name, ...each.aliases])
  throw new SparkError('ERR_ARGUMENT', `there are no events named '${name}'${didYouMean(name, known)}`)
}
