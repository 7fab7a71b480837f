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
@description('Where orchestrations are kept: the storage account, or a Durable Task Scheduler.')
param durableBackend string = 'storage'

@allowed([512, 2048, 4096])
@description('Memory of one instance in MB; processors come in proportion.')
param instanceMemoryMB int = 2048

@minValue(1)
@maxValue(1000)
@description('The most instances that run at once.')
param maximumInstanceCount int = 40

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
    identityClientId: identity.outputs.clientId
    storageAccountName: storage.outputs.name
    deploymentContainerUrl: storage.outputs.deploymentContainerUrl
    insightsConnectionString: monitoring.outputs.connectionString
    schedulerEndpoint: durableBackend == 'scheduler' ? scheduler!.outputs.endpoint : ''
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    alwaysReadyHttp: alwaysReadyHttp
    alwaysReadyDurable: alwaysReadyDurable
    appSettings: appSettings
  }
}

output AZURE_LOCATION string = location
output AZURE_RESOURCE_GROUP string = group.name
output AZURE_FUNCTION_APP_NAME string = app.outputs.name
output APP_URL string = app.outputs.url
output APP_IDENTITY_PRINCIPAL_ID string = identity.outputs.principalId
