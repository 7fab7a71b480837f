// The Function App, on the Flex Consumption plan or on the Premium plan.
param name string
param planName string
param location string
param tags object

@description('Resource id of the app\'s identity.')
param identityId string

@allowed(['flex', 'premium'])
param plan string

@description('Where the deployed package lies (flex).')
param deploymentContainerUrl string

@description('Of the account and the share with the deployed files (premium).')
param contentAccountName string
param contentShareName string

@description('The subnet that outgoing traffic takes; empty = none.')
param subnetId string

param instanceMemoryMB int
param maximumInstanceCount int

@description('Requests that one instance answers at once (flex).')
param httpPerInstanceConcurrency int

param alwaysReadyHttp int
param alwaysReadyDurable int

@description('Size of an instance (premium).')
param premiumSku string

@description('All of the app\'s settings, from settings.bicep.')
param appSettings object

var isFlex = plan == 'flex'

var scaleGroups = [
  { name: 'http', instanceCount: alwaysReadyHttp }
  { name: 'durable', instanceCount: alwaysReadyDurable }
]

var alwaysReady = filter(scaleGroups, group => group.instanceCount > 0)

var flexConfig = {
  deployment: {
    storage: {
      type: 'blobContainer'
      value: deploymentContainerUrl
      authentication: {
        type: 'UserAssignedIdentity'
        userAssignedIdentityResourceId: identityId
      }
    }
  }
  runtime: {
    name: 'python'
    version: '3.13'
  }
  scaleAndConcurrency: {
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    alwaysReady: alwaysReady
    triggers: {
      http: {
        perInstanceConcurrency: httpPerInstanceConcurrency
      }
    }
  }
}

// Premium names the runtime in the site, and scales the app as a whole.
var premiumSiteConfig = {
  linuxFxVersion: 'Python|3.13'
  minimumElasticInstanceCount: max(1, alwaysReadyHttp, alwaysReadyDurable)
  functionAppScaleLimit: maximumInstanceCount
  // The host measures its own queues, also those that only the network reaches, and the settings over host.json count.
  functionsRuntimeScaleMonitoringEnabled: true
}

resource content 'Microsoft.Storage/storageAccounts@2024-01-01' existing = if (!isFlex) {
  name: contentAccountName
}

// Flex Consumption has these elsewhere, or refuses them.
var premiumSettings = isFlex ? {} : {
  FUNCTIONS_EXTENSION_VERSION: '~4'
  FUNCTIONS_WORKER_RUNTIME: 'python'
  SCM_DO_BUILD_DURING_DEPLOYMENT: 'true'
  ENABLE_ORYX_BUILD: 'true'
  // Azure Files knows no identity here, so the share with the code, and nothing else, is reached by a key.
  WEBSITE_CONTENTAZUREFILECONNECTIONSTRING: 'DefaultEndpointsProtocol=https;AccountName=${contentAccountName};AccountKey=${content!.listKeys().keys[0].value};EndpointSuffix=${environment().suffixes.storage}'
  WEBSITE_CONTENTSHARE: contentShareName
  WEBSITE_CONTENTOVERVNET: empty(subnetId) ? '0' : '1'
}

resource serverfarm 'Microsoft.Web/serverfarms@2024-04-01' = {
  name: planName
  location: location
  tags: tags
  kind: isFlex ? 'functionapp' : 'elastic'
  sku: {
    name: isFlex ? 'FC1' : premiumSku
    tier: isFlex ? 'FlexConsumption' : 'ElasticPremium'
  }
  properties: {
    reserved: true
    maximumElasticWorkerCount: isFlex ? null : maximumInstanceCount
  }
}

resource app 'Microsoft.Web/sites@2024-04-01' = {
  name: name
  location: location
  tags: tags
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: serverfarm.id
    httpsOnly: true
    // As whom `@Microsoft.KeyVault(...)` in a setting is read.
    keyVaultReferenceIdentity: identityId
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: union({
      minTlsVersion: '1.2'
      ftpsState: 'Disabled'
    }, isFlex ? {} : premiumSiteConfig)
    functionAppConfig: isFlex ? flexConfig : null
  }

  resource settings 'config' = {
    name: 'appsettings'
    properties: union(appSettings, premiumSettings)
  }
}

output name string = app.name
output url string = 'https://${app.properties.defaultHostName}'
