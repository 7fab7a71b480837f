// One resource group with everything that the app needs, and nothing reached by a key. See docs/deploying.md.
targetScope = 'subscription'

@minLength(1)
@maxLength(64)
@description('Name of the environment; the names of all resources come from it.')
param environmentName string

@minLength(1)
@description('Region of every resource; it must offer Flex Consumption.')
@metadata({ azd: { type: 'location' } })
param location string

@allowed(['storage', 'scheduler'])
// Whether a scheduler runs the entities of a Python app, which this app needs, is not known: docs/deploying.md.
@description('Where orchestrations are kept: the storage account, or a Durable Task Scheduler, on which this app has not been run.')
param durableBackend string = 'storage'

@minValue(0)
@maxValue(3)
@description('Capacity units of a scheduler on its Dedicated plan; 0 = the Consumption plan. See docs/sizing.md.')
param schedulerUnits int = 0

@description('Whether a virtual network is made, storage is reached through private endpoints in it, and not otherwise.')
param privateNetwork bool = false

@description('Addresses of that network, a /23 or wider.')
param addressPrefix string = '10.0.0.0/16'

@allowed(['applicationInsights', 'openTelemetry'])
@description('How the host sends its telemetry; with openTelemetry it is one trace with the app\'s.')
param hostTelemetry string = 'applicationInsights'

@description('Where OTLP over HTTP is received, beside Application Insights; empty = nowhere.')
param otlpEndpoint string = ''

@allowed([512, 2048, 4096])
@description('Memory of one instance in MB; processors come in proportion.')
param instanceMemoryMB int = 2048

@minValue(1)
@maxValue(1000)
// Flex scales HTTP together, the durable functions together, and every other function by itself.
@description('The most instances of each function group; no bound of the cost.')
param maximumInstanceCount int = 40

// Unless this is set, Flex sends an instance of a Python app one request at a time and starts an instance for each
// further one. A request of this app waits for storage, so one process answers many at once: as many as host.json has
// attempts at once (maxConcurrentActivityFunctions). Requests with bodies near the limit, on 512 MB, want fewer.
@minValue(1)
@maxValue(1000)
@description('Requests that one instance answers at once.')
param httpPerInstanceConcurrency int = 100

@minValue(0)
@description('Instances kept running for HTTP, so that no caller waits for a cold start; 0 = none.')
param alwaysReadyHttp int = 0

@minValue(0)
@description('Instances kept running for orchestrations, activities and entities; 0 = none.')
param alwaysReadyDurable int = 1

@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
@description('How the storage account is copied. Not every region has zones, as ZRS needs them.')
param storageSku string = 'Standard_ZRS'

@minValue(30)
@maxValue(730)
@description('Days that logs and telemetry are kept.')
param logRetentionDays int = 30

@minValue(1)
@maxValue(365)
@description('Days in which a deleted or overwritten blob or container can be restored.')
param blobRetentionDays int = 7

@description('App settings of your own: those of docs/settings.md, and what dependencies.toml takes by "\${NAME}".')
param appSettings object = {}

var token = toLower(uniqueString(subscription().id, environmentName, location))
var tags = { 'azd-env-name': environmentName }

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

module identity 'modules/identity.bicep' = {
  name: 'identity'
  scope: group
  params: {
    name: 'id-${token}'
    location: location
    tags: tags
  }
}

module storage 'modules/storage.bicep' = {
  name: 'storage'
  scope: group
  params: {
    name: 'st${token}'
    location: location
    tags: tags
    sku: storageSku
    principalId: identity.outputs.principalId
    isPrivate: privateNetwork
    retentionDays: blobRetentionDays
    workspaceId: monitoring.outputs.workspaceId
  }
}

module network 'modules/network.bicep' = if (privateNetwork) {
  name: 'network'
  scope: group
  params: {
    name: 'vnet-${token}'
    location: location
    tags: tags
    addressPrefix: addressPrefix
    storageId: storage.outputs.id
  }
}

module monitoring 'modules/monitoring.bicep' = {
  name: 'monitoring'
  scope: group
  params: {
    workspaceName: 'log-${token}'
    insightsName: 'appi-${token}'
    location: location
    tags: tags
    retentionDays: logRetentionDays
    principalId: identity.outputs.principalId
  }
}

module scheduler 'modules/scheduler.bicep' = if (durableBackend == 'scheduler') {
  name: 'scheduler'
  scope: group
  params: {
    name: 'dts-${token}'
    location: location
    tags: tags
    principalId: identity.outputs.principalId
    units: schedulerUnits
  }
}

module settings 'modules/settings.bicep' = {
  name: 'settings'
  scope: group
  params: {
    storageAccountName: storage.outputs.name
    identityClientId: identity.outputs.clientId
    insightsConnectionString: monitoring.outputs.connectionString
    schedulerEndpoint: durableBackend == 'scheduler' ? scheduler!.outputs.endpoint : ''
    hostTelemetry: hostTelemetry
    otlpEndpoint: otlpEndpoint
    appSettings: appSettings
  }
}

module app 'modules/app.bicep' = {
  name: 'app'
  scope: group
  params: {
    name: 'func-${token}'
    planName: 'plan-${token}'
    location: location
    tags: union(tags, { 'azd-service-name': 'app' })
    identityId: identity.outputs.id
    deploymentContainerUrl: storage.outputs.deploymentContainerUrl
    subnetId: privateNetwork ? network!.outputs.appSubnetId : ''
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    httpPerInstanceConcurrency: httpPerInstanceConcurrency
    alwaysReadyHttp: alwaysReadyHttp
    alwaysReadyDurable: alwaysReadyDurable
    workspaceId: monitoring.outputs.workspaceId
    appSettings: settings.outputs.settings
  }
}

output AZURE_LOCATION string = location
output AZURE_RESOURCE_GROUP string = group.name
output AZURE_FUNCTION_APP_NAME string = app.outputs.name
output APP_URL string = app.outputs.url
output APP_IDENTITY_PRINCIPAL_ID string = identity.outputs.principalId
